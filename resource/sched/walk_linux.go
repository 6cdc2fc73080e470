package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// kernelThread is the flag PF_KTHREAD in /proc/PID/stat.
const kernelThread = 0x00200000

// errEmpty means that a process has ended while it was looked at.
var errEmpty = errors.New("no such thread")

// task is a thread that a walker lists.
type task struct {
	resource.Stat
	tgid int
}

// ofKernel reports whether it is a kernel thread.
func (t *task) ofKernel() bool { return t.Flags&kernelThread != 0 }

// A walker lists the threads of a target from /proc.
type walker struct {
	root   fs.FS
	pids   []int // nil is all
	comm   string
	cgroup string // folder below root
}

func newWalk(root fs.FS, target bpf.Target) (*walker, error) {
	w := &walker{root: root, comm: target.Comm, pids: slices.Clone(target.PIDs)}
	if target.Later && w.pids == nil {
		w.pids = []int{}
	}
	if target.Cgroup != "" {
		w.cgroup = groupFolder(root, target.Cgroup)
		if _, err := fs.Stat(root, path.Join(w.cgroup, "cgroup.procs")); err != nil {
			return nil, fmt.Errorf("cgroup %s: %w; list them with: find /sys/fs/cgroup -type d", target.Cgroup, err)
		}
	}
	if _, err := fs.Stat(root, "proc/stat"); err != nil {
		return nil, fmt.Errorf("poll /proc: %w; mount it: mount -t proc proc /proc", err)
	}
	return w, nil
}

// add adds a process to a target of processes.
func (w *walker) add(pid int) {
	if !slices.Contains(w.pids, pid) {
		w.pids = append(w.pids, pid)
	}
}

// processes lists the target's processes, those that have ended possibly included.
func (w *walker) processes() ([]int, error) {
	inGroup := map[int]bool{}
	if w.cgroup != "" {
		if err := w.members(inGroup); err != nil {
			return nil, err
		}
	}
	all := w.pids
	if all == nil {
		entries, err := fs.ReadDir(w.root, "proc")
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				all = append(all, pid)
			}
		}
	}
	if w.cgroup != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !inGroup[pid] })
	}
	return all, nil
}

// members collects the processes of the control group and of those below it.
func (w *walker) members(into map[int]bool) error {
	return fs.WalkDir(w.root, w.cgroup, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // groups come and go
		}
		text, err := fs.ReadFile(w.root, path.Join(name, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				into[pid] = true
			}
		}
		return nil
	})
}

// threads lists the target's threads. What has ended is left out.
func (w *walker) threads() ([]task, error) {
	pids, err := w.processes()
	if err != nil {
		return nil, err
	}
	var all []task
	for _, pid := range pids {
		tasks, err := fs.ReadDir(w.root, fmt.Sprintf("proc/%d/task", pid))
		if err != nil {
			continue // it ended
		}
		for _, entry := range tasks {
			text, err := fs.ReadFile(w.root, fmt.Sprintf("proc/%d/task/%s/stat", pid, entry.Name()))
			if err != nil {
				continue // it ended
			}
			s, err := resource.ParseStat(text)
			if err != nil {
				return nil, err
			}
			if !s.Ended() && (w.comm == "" || s.Name == w.comm) {
				all = append(all, task{s, pid})
			}
		}
	}
	return all, nil
}
