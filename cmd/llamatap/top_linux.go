package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/inspect/resources"
)

// notifyResize sends a signal whenever the terminal has another size.
func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

// runOfProcess is the directory of the live run that a process, or its parent, records; "" where there is none. A
// collector holds the directory open, and is the parent of the model's process.
func runOfProcess(pid int) string {
	parent := 0
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, fields, _ := strings.Cut(string(stat), ") ")
		var state string
		fmt.Sscan(fields, &state, &parent)
	}
	for _, process := range []int{pid, parent} {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", process))
		for _, link := range links {
			dir, err := os.Readlink(link)
			if err == nil && strings.HasPrefix(filepath.Base(dir), "run_") &&
				resources.StateOf(dir) == resources.StateRunning {
				return dir
			}
		}
	}
	return ""
}
