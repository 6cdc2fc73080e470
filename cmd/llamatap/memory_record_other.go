//go:build !linux

package main

func runMemoryRecord(memoryRecording) error { return errNotHere }
