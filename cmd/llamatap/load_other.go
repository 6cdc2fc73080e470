//go:build !linux

package main

func runLoad(string) error { return errNotHere }
