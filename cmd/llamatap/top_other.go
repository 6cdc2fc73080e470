//go:build !linux

package main

import "os"

// notifyResize does nothing: each update asks for the terminal's size.
func notifyResize(chan<- os.Signal) {}

// runOfProcess finds nothing where no run is recorded.
func runOfProcess(int) string { return "" }

// stepBack does nothing where no model is recorded.
func stepBack(int) {}
