package resource

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Stat is what /proc/PID/stat says of a process or thread. Times are in ticks of 1/100 s, which is USER_HZ on every
// architecture that Go runs on.
type Stat struct {
	ID, Parent int
	Name       string
	State      byte
	Flags      uint64
	Own        StatCounts
	Waited     StatCounts // of children that it has waited for, and of theirs
	Threads    int
	Start      uint64 // since the machine started
}

// StatCounts are what grows while a process runs.
type StatCounts struct{ Minor, Major, User, System uint64 }

// ParseStat reads the text of /proc/PID/stat, or of a thread's. The name is in parentheses and may hold anything.
func ParseStat(text []byte) (s Stat, err error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return s, fmt.Errorf("no name in %.60q", text)
	}
	if s.ID, err = strconv.Atoi(string(bytes.TrimSpace(text[:open]))); err != nil {
		return s, fmt.Errorf("no number in %.60q: %w", text, err)
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 20 {
		return s, fmt.Errorf("%d fields in %.60q, want 22", len(fields)+2, text)
	}
	s.Name, s.State = string(text[open+1:end]), fields[0][0]
	var parent, threads uint64
	for _, number := range []struct { // as proc(5) numbers the fields
		field int
		into  *uint64
	}{
		{4, &parent}, {9, &s.Flags}, {10, &s.Own.Minor}, {11, &s.Waited.Minor}, {12, &s.Own.Major},
		{13, &s.Waited.Major}, {14, &s.Own.User}, {15, &s.Own.System}, {16, &s.Waited.User}, {17, &s.Waited.System},
		{20, &threads}, {22, &s.Start},
	} {
		if *number.into, err = strconv.ParseUint(string(fields[number.field-3]), 10, 64); err != nil {
			return s, fmt.Errorf("field %d of %.60q: %w", number.field, text, err)
		}
	}
	s.Parent, s.Threads = int(parent), int(threads)
	return s, nil
}

// Ended reports whether it has ended, and nobody has waited for it yet.
func (s *Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// ResidentBytes is what a process, by number or "self", has in memory, from /proc/PID/statm below root. The kernel
// keeps
// the figure per processor and lets it be some pages off.
func ResidentBytes(root fs.FS, pid string) (uint64, error) {
	text, err := fs.ReadFile(root, "proc/"+pid+"/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read /proc/%s/statm: %.40q has no second field", pid, text)
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read /proc/%s/statm: %w", pid, err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
