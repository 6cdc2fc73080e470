// Package bpf is what the host collectors are built on: it loads a collector's BPF programs, attaches them with a
// fall-back, restricts them to the tasks that are wanted, counts what they cost, and says what is missing and how
// to get it.
//
// A collector's object holds its programs in sections named as libbpf names them. Programs of tp_btf sections know
// the kernel's types and are taken where the kernel has BTF. Programs of tracepoint sections whose names end in
// _plain stand in where it has not, for them and for the program of any kind that has the name without it; other
// programs are loaded in both cases. The headers in include are shared by all collectors.
package bpf
