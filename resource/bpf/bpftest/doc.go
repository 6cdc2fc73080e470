// Package bpftest is a collector that counts switches, for the tests of resource/bpf.
package bpftest
