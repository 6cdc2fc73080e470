package main

import (
	"runtime"
	"strconv"
	"syscall"

	"github.com/llamatap/llamatap/bench"
)

// runLoad is the busy neighbour of comparison (e), in a process of its own.
func runLoad(level string) error {
	nice, err := strconv.Atoi(level)
	if err != nil {
		return err
	}
	return bench.Load(runtime.NumCPU(), func() {
		runtime.LockOSThread()
		syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), nice)
	})
}
