//go:build !linux

package main

func runAttach(attachOptions) error { return errNotHere }
