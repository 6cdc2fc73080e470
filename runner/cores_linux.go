package runner

import (
	"os"
	"path/filepath"
	"runtime"
)

// Cores is the number of physical cores that this process may use, at least 1: one thread on each is what llama.cpp
// computes fastest with, two on one core get in each other's way.
func Cores() int {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings")
	siblings := make(map[string]bool)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			siblings[string(text)] = true
		}
	}
	if len(siblings) == 0 {
		return runtime.NumCPU()
	}
	return min(len(siblings), runtime.NumCPU())
}
