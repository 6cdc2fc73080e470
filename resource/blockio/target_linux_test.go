package blockio

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// held starts a shell that waits for a line and then becomes the command, so that it can be watched before it does
// anything.
func held(t *testing.T, command string) (cmd *exec.Cmd, start func()) {
	t.Helper()
	cmd = exec.Command("/bin/sh", "-c", "read line; exec "+command)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	t.Cleanup(func() {
		if !done {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, func() {
		t.Helper()
		done = true
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// group makes a control group with one below it, and puts a process into the latter.
func group(t *testing.T, hierarchy string, pid int) (top string) {
	t.Helper()
	top = filepath.Join(hierarchy, "llamatap-"+filepath.Base(filepath.Dir(t.TempDir())))
	inner := filepath.Join(top, "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		testenv.Beyond(t, "control groups that can be made in "+hierarchy, err.Error())
	}
	t.Cleanup(func() {
		os.Remove(inner)
		os.Remove(top)
	})
	if err := os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		testenv.Beyond(t, "control groups that can be joined in "+hierarchy, err.Error())
	}
	return top
}

func unifiedHierarchy(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir
		}
	}
	testenv.Beyond(t, "cgroup v2", "it is not mounted")
	return ""
}

func TestTargets(t *testing.T) {
	dev := loop(t, 64, "")
	read := "dd if=" + dev + " of=/dev/null bs=64k count=32 iflag=direct status=none"
	for name, target := range map[string]func(t *testing.T, pid int) bpf.Target{
		"pid":  func(_ *testing.T, pid int) bpf.Target { return bpf.Target{PIDs: []int{pid}} },
		"comm": func(*testing.T, int) bpf.Target { return bpf.Target{Comm: "dd"} },
		"blkio": func(t *testing.T, pid int) bpf.Target {
			return bpf.Target{Cgroup: group(t, "/sys/fs/cgroup/blkio", pid)}
		},
		"memory": func(t *testing.T, pid int) bpf.Target {
			return bpf.Target{Cgroup: group(t, "/sys/fs/cgroup/memory", pid)}
		},
		"v2": func(t *testing.T, pid int) bpf.Target {
			return bpf.Target{Cgroup: group(t, unifiedHierarchy(t), pid)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, start := held(t, read)
			c := open(t, Options{Devices: []string{dev}, Target: target(t, cmd.Process.Pid)})
			run(t, "cat", dev) // through the page cache, so that nothing is left to it of what is read
			snap(t, c)
			start()
			run(t, "cp", dev, "/dev/null")
			line := snap(t, c)
			checkWhole(t, line)
			if d := of(line, dev); d.Requests+value(d.Untimed) != 32 || d.Bytes != 2<<20 {
				t.Errorf("%d requests, %d untimed, %d bytes, want 32 of 2 MiB", d.Requests, value(d.Untimed), d.Bytes)
			}
			if len(line.Processes) != 1 || line.Processes[0].PID != uint32(cmd.Process.Pid) ||
				line.Processes[0].Comm != "dd" {
				t.Errorf("processes %+v", line.Processes)
			}
		})
	}
}

// TestCgroups: requests are distinguished by control group, of either version.
func TestCgroups(t *testing.T) {
	dev := loop(t, 64, "")
	for _, unified := range []bool{false, true} {
		t.Run(map[bool]string{false: "v1", true: "v2"}[unified], func(t *testing.T) {
			hierarchy := "/sys/fs/cgroup/blkio"
			if unified {
				hierarchy = unifiedHierarchy(t)
			}
			c := open(t, Options{Devices: []string{dev}, unified: unified})
			cmd, start := held(t, "dd if="+dev+" of=/dev/null bs=64k count=32 iflag=direct status=none")
			want := "/" + filepath.Base(group(t, hierarchy, cmd.Process.Pid)) + "/inner"
			start()
			line := snap(t, c)
			for _, g := range line.Cgroups {
				if g.Path == want && g.Op == resource.BlockRead && g.Requests+value(g.Untimed) == 32 {
					return
				}
			}
			t.Errorf("%s is not among %+v", want, line.Cgroups)
		})
	}
}

func TestHierarchies(t *testing.T) {
	const both = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup " +
		"/sys/fs/cgroup/b cgroup rw,blkio 0 0\n"
	for _, w := range []struct {
		mounts, mount string
		unified, v1   bool
	}{
		{both, "/sys/fs/cgroup/b", false, true},
		{both, "/sys/fs/cgroup/unified", true, false},
		{"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "/sys/fs/cgroup", false, false},
		{"", "", false, false},
	} {
		if g := newGroups(w.mounts, w.unified); g.mount != w.mount || g.v1 != w.v1 || g.path(1<<60) != "?" {
			t.Errorf("%q: %+v", w.mounts, g)
		}
	}
}

// TestOldKernel: where the kernel does not say who starts a request, who is there when it is issued counts.
func TestOldKernel(t *testing.T) {
	dev := loop(t, 64, "")
	cmd, start := held(t, "dd if="+dev+" of=/dev/null bs=64k count=32 iflag=direct status=none")
	c := open(t, Options{Devices: []string{dev}, Target: bpf.Target{PIDs: []int{cmd.Process.Pid}}, old: true})
	start()
	run(t, "dd", "if="+dev, "of=/dev/null", "bs=64k", "count=8", "iflag=direct")
	line := snap(t, c)
	checkWhole(t, line)
	d := of(line, dev)
	if d.Requests+value(d.Untimed) != 32 || len(line.Processes) != 1 ||
		line.Processes[0].PID != uint32(cmd.Process.Pid) || *line.Processes[0].QueueNS == 0 {
		t.Errorf("%d requests, want 32; processes %+v", d.Requests, line.Processes)
	}
	all := open(t, Options{Devices: []string{dev}, old: true})
	before := kernelStats(t, dev)
	run(t, "dd", "if=/dev/zero", "of="+dev, "bs=4k", "count=2k", "conv=fsync,notrunc")
	settle(t, dev)
	line = snap(t, all)
	after := kernelStats(t, dev)
	// The flush that is never issued is not seen here.
	if w := op(of(line, dev), resource.BlockWrite); w.Bytes != (after.sectors[1]-before.sectors[1])*512 ||
		w.Requests+value(w.Untimed) > after.done[1]-before.done[1] {
		t.Errorf("%d requests of %d bytes, the kernel has %d of %d", w.Requests, w.Bytes, after.done[1]-before.done[1],
			(after.sectors[1]-before.sectors[1])*512)
	}
}

// TestAddPID: a process that comes later.
func TestAddPID(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, Target: bpf.Target{PIDs: []int{os.Getpid()}}})
	read := "dd if=" + dev + " of=/dev/null bs=64k count=32 iflag=direct status=none"
	_, start := held(t, read)
	start()
	cmd, start := held(t, read)
	if err := c.AddPID(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	start()
	if d := of(snap(t, c), dev); d.Requests+value(d.Untimed) != 32 {
		t.Errorf("%d requests, want 32", d.Requests)
	}
}

// TestFollow: what a process of the target starts belongs to it, and what that starts, until it ends.
func TestFollow(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, Target: bpf.Target{Later: true}, Follow: true})
	read := "dd if=" + dev + " of=/dev/null bs=64k count=32 iflag=direct status=none"
	cmd, start := held(t, `sh -c "`+read+`; sh -c '`+read+`; :'; :"`)
	if err := c.AddPID(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	start()
	run(t, "sh", "-c", read) // nobody of the target
	d := of(snap(t, c), dev)
	if d.Requests+value(d.Untimed) != 64 {
		t.Errorf("%d requests, want 64", d.Requests)
	}
	var pids uint32
	if err := bpf.Each(c.set.Map("target_pids"), func(pid uint32, _ uint8) { pids++ }); err != nil || pids != 0 {
		t.Errorf("%d processes are still followed, %v", pids, err)
	}
}

// TestWithoutRights checks that a process without permissions polls, and that Missing names the remedy.
func TestWithoutRights(t *testing.T) {
	if os.Getenv("LLAMATAP_TEST_CHILD") == "" {
		testenv.NeedBPF(t)
	} else {
		c, err := Open(Options{Target: bpf.Target{PIDs: []int{1}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.AddPID(2); err != nil {
			t.Error(err)
		}
		if stats, err := c.Programs(); err != nil || len(stats) != 0 {
			t.Error(stats, err)
		}
		line := snap(t, c)
		if !errors.Is(c.Missing(), bpf.ErrMissing) || line.Origin != resource.OriginProc || len(line.Missing) != 2 ||
			!strings.Contains(line.Missing[0], "setcap") || !strings.Contains(line.Missing[1], "all processes") {
			t.Errorf("%v, %q", c.Missing(), line.Missing)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWithoutRights$", "-test.v")
	cmd.Env = append(os.Environ(), "LLAMATAP_TEST_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
