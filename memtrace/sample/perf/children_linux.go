package perf

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Descendants are the processes that a process has started and that run now, those that they have started, and so
// on, parents before children. What lost its parent is nobody's: of a process that ended, the kernel gives its
// children to another one.
func Descendants(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := Parent(child); ok {
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for open := []int{pid}; len(open) > 0; open = open[1:] {
		all = append(all, children[open[0]]...)
		open = append(open, children[open[0]]...)
	}
	return all
}

// Parent is the process that started another one, or that took its place; false: the other one is gone.
func Parent(pid int) (parent int, ok bool) {
	fields := stat(strconv.Itoa(pid))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil && parent != pid
}

// stat are the fields of the file stat in a folder of /proc, after the name, which may hold anything: state, parent,
// and so on. None: the process or thread is gone.
func stat(folder ...string) []string {
	text, err := os.ReadFile(filepath.Join("/proc", filepath.Join(folder...), "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
