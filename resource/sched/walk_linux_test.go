package sched

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/resource/bpf"
)

const statText = "812 (a (b) c) S 1 812 812 0 -1 4194560 1500 20 7 1 33 44 0 0 20 0 3 0 12345 1000000 300 " +
	"18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"

// processes is a fake /proc of three processes, one of the kernel, in a hierarchy of version 2.
func processes() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	stat := func(tid, comm, flags string) *fstest.MapFile {
		return file(strings.NewReplacer("812 (", tid+" (", "a (b) c", comm, "4194560", flags).Replace(statText))
	}
	return fstest.MapFS{
		"proc/stat": file("cpu\n"), "proc/self/mounts": file("none /sys/fs/cgroup cgroup2 rw 0 0\n"),
		"proc/uptime":            file("1 1\n"),
		"proc/812/task/812/stat": stat("812", "main", "4194560"), "proc/812/task/813/stat": stat("813", "work", "64"),
		"proc/900/task/900/stat": stat("900", "work", "0"), "proc/2/task/2/stat": stat("2", "kthreadd", "2129984"),
		"sys/fs/cgroup/g/cgroup.procs": file("900\n"), "sys/fs/cgroup/g/deep/cgroup.procs": file("2\n"),
	}
}

func TestWalk(t *testing.T) {
	for name, c := range map[string]struct {
		target bpf.Target
		want   []int
	}{
		"all":                       {bpf.Target{}, []int{2, 812, 813, 900}},
		"processes":                 {bpf.Target{PIDs: []int{812, 4}}, []int{812, 813}},
		"none yet":                  {bpf.Target{Later: true}, nil},
		"a name of a thread":        {bpf.Target{Comm: "work"}, []int{813, 900}},
		"a group and what is below": {bpf.Target{Cgroup: "g"}, []int{2, 900}},
		"a group and a process":     {bpf.Target{Cgroup: "/sys/fs/cgroup/g", PIDs: []int{812}}, nil},
	} {
		w, err := newWalk(processes(), c.target)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		threads, err := w.threads()
		var got []int
		for _, s := range threads {
			got = append(got, s.ID)
		}
		if err != nil || len(got) != len(c.want) {
			t.Fatalf("%s: %v, %v; want %v", name, got, err, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
	if _, err := newWalk(processes(), bpf.Target{Cgroup: "nowhere"}); err == nil ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a group that is not there: %v", err)
	}
	if _, err := newWalk(fstest.MapFS{}, bpf.Target{}); err == nil || !strings.Contains(err.Error(), "mount") {
		t.Errorf("no /proc: %v", err)
	}
}
