package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// A Target says which tasks a collector looks at. All that is set must hold; the zero value is every task.
type Target struct {
	PIDs []int // processes, with all their threads
	// Later restricts it to PIDs and to what AddPID adds, though there may be none yet.
	Later bool
	Comm  string // name of the thread, as /proc/TID/comm has it, at most 15 bytes
	// Cgroup is a control group with all below it: a folder (/sys/fs/cgroup/...), or its path below the hierarchy
	// of version 2. A folder of version 1 counts for the tasks that its controller lists.
	Cgroup string
}

// Any reports whether the target includes every task.
func (t Target) Any() bool { return !t.byPID() && t.Comm == "" && t.Cgroup == "" }

func (t Target) byPID() bool { return t.Later || len(t.PIDs) > 0 }

// apply sets the constants of include/target.h. An object that does not include it takes every task; a target is
// then refused.
func (t Target) apply(spec *ebpf.CollectionSpec, plain bool) error {
	if spec.Variables["target_by_pid"] == nil {
		if !t.Any() {
			return errors.New("this collector looks at all tasks and takes no target")
		}
		return nil
	}
	if t.byPID() {
		if err := outermost("/proc/self/ns/pid"); err != nil {
			return err
		}
	}
	set := map[string]any{"target_by_pid": t.byPID(), "target_by_comm": t.Comm != "",
		"target_by_cgroup": t.Cgroup != ""}
	if t.Comm != "" {
		if len(t.Comm) > 15 {
			return fmt.Errorf("comm %q has %d bytes; the kernel keeps 15 of a thread's name: give what "+
				"/proc/PID/comm has", t.Comm, len(t.Comm))
		}
		var name [16]byte
		copy(name[:], t.Comm)
		set["target_comm"] = [2]uint64{binary.NativeEndian.Uint64(name[:8]), binary.NativeEndian.Uint64(name[8:])}
	}
	if t.Cgroup != "" {
		group, err := findCgroup(t.Cgroup)
		if err != nil {
			return err
		}
		if plain && group.subsys >= 0 {
			return fmt.Errorf("cgroup %s is of version 1, which needs a kernel with BTF; use --pid", t.Cgroup)
		}
		set["target_cgroup"], set["target_cgroup_level"], set["target_cgroup_subsys"] = group.id, group.level,
			group.subsys
	}
	for name, value := range set {
		v := spec.Variables[name]
		if v == nil {
			continue // no program of the object uses it
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set constant %s: %w", name, err)
		}
	}
	return nil
}

// initPIDs is what the kernel calls its first namespace of process ids (PROC_PID_INIT_INO).
const initPIDs = "pid:[4026531836]"

// outermost returns an error if this process is in a PID namespace: BPF programs see the kernel's ids, so that they
// would find no process, or a wrong one.
func outermost(link string) error {
	if name, err := os.Readlink(link); err == nil && name != initPIDs {
		return fmt.Errorf("processes have other ids here than in the kernel (namespace %s, as in a container); "+
			"needs: the container started with --pid=host, or --cgroup in place of --pid", name)
	}
	return nil
}

// fill puts the processes into the map.
func (t Target) fill(c *ebpf.Collection) error {
	for _, pid := range t.PIDs {
		if err := addPID(c, pid); err != nil {
			return err
		}
	}
	return nil
}

func addPID(c *ebpf.Collection, pid int) error {
	m := c.Maps["target_pids"]
	if m == nil {
		return errors.New("this collector takes no target")
	}
	if err := m.Put(uint32(pid), uint8(1)); err != nil {
		return fmt.Errorf("add process %d to the target: %w", pid, err)
	}
	return nil
}

// AddPID adds a process to a target that is restricted to processes.
func (s *Set) AddPID(pid int) error {
	if !s.byPID {
		return errors.New("the target is not restricted to processes")
	}
	return addPID(s.collection, pid)
}

// cgroup is a control group as the constants of include/target.h name it.
type cgroup struct {
	id     uint64
	level  int32
	subsys int32 // -1 is version 2
}

// findCgroup looks a control group up. A path that is not a folder is taken below the hierarchy of version 2.
func findCgroup(path string) (cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroup{}, err
	}
	return findCgroupIn(string(mounts), path)
}

func findCgroupIn(mounts, path string) (cgroup, error) {
	var unified string
	hierarchies := map[string]string{} // mount point → options; "" is version 2
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup2":
			unified = f[1]
			hierarchies[f[1]] = ""
		case f[2] == "cgroup":
			hierarchies[f[1]] = f[3]
		}
	}
	dir := path
	if i, err := os.Stat(path); err != nil || !i.IsDir() || !filepath.IsAbs(path) || within(path, hierarchies) == "" {
		if unified == "" {
			return cgroup{}, fmt.Errorf("cgroup %s: this machine has no hierarchy of version 2; give the whole path "+
				"of the folder, such as /sys/fs/cgroup/memory/%s", path, strings.TrimPrefix(path, "/"))
		}
		dir = filepath.Join(unified, path)
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return cgroup{}, fmt.Errorf("cgroup %s: there is no folder %s; list them with: find /sys/fs/cgroup -type d",
			path, dir)
	} else if err != nil {
		return cgroup{}, fmt.Errorf("cgroup %s: %w", path, err)
	}
	mount := within(dir, hierarchies)
	rest, _ := filepath.Rel(mount, dir)
	g := cgroup{id: info.Sys().(*syscall.Stat_t).Ino, subsys: -1}
	if rest != "." {
		g.level = int32(strings.Count(rest, "/") + 1)
	}
	if options := hierarchies[mount]; options != "" {
		if g.subsys, err = subsystem(options); err != nil {
			return cgroup{}, fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return g, nil
}

// within returns the mount point that a folder lies in, the longest.
func within(dir string, hierarchies map[string]string) string {
	var best string
	for mount := range hierarchies {
		if (dir == mount || strings.HasPrefix(dir, mount+"/")) && len(mount) > len(best) {
			best = mount
		}
	}
	return best
}

// subsystem returns the index of a hierarchy's controller, which each kernel counts for itself.
func subsystem(options string) (int32, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, fmt.Errorf("it is of version 1, which needs a kernel with BTF: %w; needs: %s", err, remedyBTF)
	}
	var ids *btf.Enum
	if err := kernel.TypeByName("cgroup_subsys_id", &ids); err != nil {
		return 0, err
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "blkio" {
			option = "io" // version 1's name for it
		}
		for _, v := range ids.Values {
			if v.Name == option+"_cgrp_id" {
				return int32(v.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("the kernel names no controller of a hierarchy mounted with %s", options)
}
