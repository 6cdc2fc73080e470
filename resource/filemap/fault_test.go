package filemap

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// steps runs fault.h as user-space C. It returns the layout of struct wait_event and the events of the steps.
func steps(t *testing.T, script string) (layout, events []string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "steps")
	if out, err := exec.Command(testenv.NeedCC(t), "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-o", program,
		"testdata/steps.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "size ") {
			return lines[:i+1], lines[i+1:]
		}
	}
	t.Fatalf("no layout:\n%s", out)
	return nil, nil
}

// TestFaultOfC: the logic of the BPF programs, step by step.
func TestFaultOfC(t *testing.T) {
	script := []struct{ step, want string }{
		// A fault that blocks once, is preempted once, and finds its page by itself though pages around it were mapped.
		{"begin 1000 4096 2 0", "begin 0"},
		{"at 9 77 16 8", ""},
		{"at 9 77 20 4", ""},
		{"at 9 77 16 8", ""}, // what lies around says no more
		{"off 1100 1 5 0", ""},
		{"on 1400 0 0 0", "on 0 since 1100 call 0"},
		{"off 1500 0 0 0", ""},
		{"on 1550 0 0 0", "on 0 since 1500 call 0"},
		{"end 2000 0 0 0", "fault 1000 blocked 300 preempted 50 dev 9 ino 77 page 20 flags 14"},
		// The next one knows nothing of it.
		{"begin 3000 8192 0 0", "begin 0"},
		{"end 3010 0 0 0", "fault 10 blocked 0 preempted 0 dev 0 ino 77 page 20 flags 0"},
		// One that never returns, and the one after it.
		{"begin 4000 1 0 0", "begin 0"},
		{"off 4100 1 0 0", ""},
		{"begin 5000 2 0 0", "begin 1"},
		{"on 5100 0 0 0", "on 0 since 0 call 0"},
		{"end 5200 0 0 0", "fault 200 blocked 0 preempted 0 dev 0 ino 77 page 20 flags 0"},
		// One that is given up, by a system call that reads.
		{"begin 5500 3 0 0", "begin 0"},
		{"at 9 78 4 0", ""},
		{"off 5600 1 1 0", ""},
		{"on 5700 0 0 0", "on 1 since 5600 call 1"},
		// A wait in a system call; a sleep that is no wait; a preemption.
		{"at 9 78 5 0", ""},
		{"off 6000 1 10 0", ""},
		{"on 6500 0 0 0", "on 1 since 6000 call 10"},
		{"off 7000 1 0 0", ""},
		{"on 7500 0 0 0", "on 0 since 0 call 10"},
		// A clock that went back between processors.
		{"begin 8000 1 0 0", "begin 0"},
		{"off 8100 1 0 0", ""},
		{"on 8090 0 0 0", "on 0 since 8100 call 0"},
		{"end 8200 0 0 0", "fault 200 blocked 0 preempted 0 dev 0 ino 78 page 5 flags 0"},
		// Runs: neighbours join; a gap, another file and 512 pages begin a new one.
		{"read 10 5 100 1", ""},
		{"read 11 5 101 4", ""},
		{"read 12 5 106 1", "run ino 5 100+5 from 10 to 11"},
		{"read 13 6 107 1", "run ino 5 106+1 from 12 to 12"},
		{"read 14 6 108 600", ""},
		{"read 15 6 708 1", "run ino 6 107+601 from 13 to 14"},
	}
	var in, want []string
	for _, s := range script {
		in = append(in, s.step)
		if s.want != "" {
			want = append(want, s.want)
		}
	}
	layout, events := steps(t, strings.Join(in, "\n")+"\n")
	if got := strings.Join(events, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("events\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	checkLayout(t, layout)
}

// checkLayout reads an event whose every field holds a number of its own.
func checkLayout(t *testing.T, layout []string) {
	t.Helper()
	raw := make([]byte, rawSize)
	values := map[string]uint64{}
	for i, line := range layout {
		var name string
		var at, size int
		if n, _ := fmt.Sscanf(line, "%s %d %d", &name, &at, &size); n == 3 {
			v := uint64(i+1) * 0x01010101
			if values[name] = v; name == "kind_flags" {
				v = uint64(Request)<<16 | uint64(Failed)
			}
			if size == 8 {
				binary.NativeEndian.PutUint64(raw[at:], v)
			} else {
				binary.NativeEndian.PutUint32(raw[at:], uint32(v))
			}
		} else if _, err := fmt.Sscanf(line, "size %d", &at); err != nil || at != rawSize {
			t.Fatalf("%s; Go has %d", line, rawSize)
		}
	}
	var e Event
	if err := decode(&e, raw); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{
		"begin_ns": uint64(e.BeginNS), "end_ns": uint64(e.EndNS), "at": e.At, "ino": e.File.Ino, "first": e.First,
		"last":       e.Last,
		"blocked_ns": uint64(e.BlockedNS), "preempted_ns": uint64(e.PreemptedNS), "bytes": e.Bytes,
		"dev": uint64(e.File.Dev), "bdev": uint64(e.BlockDev),
		"tid": uint64(e.TID), "tgid": uint64(e.PID), "call": uint64(e.Syscall),
	}
	for name, v := range values {
		if name != "kind_flags" && got[name] != v {
			t.Errorf("%s is %#x, want %#x", name, got[name], v)
		}
	}
	if len(values) != len(got)+1 || e.Kind != Request || e.Flags != Failed {
		t.Errorf("%d fields, kind %v, flags %d", len(values), e.Kind, e.Flags)
	}
}

func TestDecodeRefuses(t *testing.T) {
	var e Event
	raw := make([]byte, rawSize)
	if decode(&e, raw[:rawSize-1]) == nil || decode(&e, raw) == nil {
		t.Error("an invalid event was read")
	}
}
