package sched

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// hooks are the two kinds of programs.
var hooks = map[string]Options{"bpf": {}, "plain": {Plain: true}}

// ended returns the threads of lines that have ended, by name.
func ended(lines []*resource.SystemLine, comm string) (all []resource.ThreadLine) {
	for _, line := range lines {
		for _, th := range line.Threads {
			if th.Ended && th.Comm == comm {
				all = append(all, th)
			}
		}
	}
	return all
}

// Threads that are born and die between two snapshots are reported, each with its own computing.
func TestBriefThreads(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range hooks {
		t.Run(name, func(t *testing.T) {
			j := started(t, 1, "brief")
			o.Target, o.Follow = j.target(), true // a thread that ends does not end the process
			c := opened(t, o)
			j.send("g")
			first := snap(t, c)
			j.stop()
			lines := []*resource.SystemLine{first, snap(t, c), snap(t, c)}
			brief := ended(lines, "brief")
			if len(brief) != j.more["started"] || len(brief) == 0 {
				t.Errorf("%d threads of %d", len(brief), j.more["started"])
			}
			unseen := 0
			for i, th := range brief {
				split := i == 0 || i == len(brief)-1 // by a snapshot
				if th.LivedNS != th.OnCPUNS+th.OffCPUNS()+th.WorkWaitNS()+*th.FutexUnknownNS ||
					th.TGID != j.cmd.Process.Pid {
					t.Errorf("%+v", th)
				}
				switch {
				case split:
				case th.OnCPUNS == 0 && th.Faults == 0: // nothing of it was seen
					unseen++
				case th.Faults < 8 || !o.Plain && *th.Minor < 8:
					t.Errorf("it touched eight pages: %+v", th)
				case th.OnCPUNS == 0:
					unseen++
				case th.OnCPUNS < 1e4:
					t.Errorf("it touched eight pages: %+v", th)
				}
			}
			// A kernel runs no BPF program at a switch from a thread that is inside of one, and from some agents of
			// virtual machines, nor until that thread has its processor again: to the collector another thread there
			// waited all its life, and may have had no faults.
			if unseen > 1+len(brief)/20 {
				t.Errorf("%d of %d threads touched pages without a processor", unseen, len(brief))
			}
			for _, line := range lines {
				if line.Lost != (resource.SystemLosses{}) {
					t.Errorf("lost %+v", line.Lost)
				}
			}
		})
	}
}

// A storm of 5,000 processes: each is reported while there is room, and counted as lost where there is none; the map
// takes no more memory.
func TestForkStorm(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBPF(t)
	const children = 5000
	for name, room := range map[string]uint32{"room": 1 << 15, "no room": 1 << 10} {
		t.Run(name, func(t *testing.T) {
			j := started(t, 0, "storm", strconv.Itoa(children))
			c := opened(t, Options{Target: j.target(), Follow: true, Threads: room})
			snap(t, c)
			before := memory(t, c)
			j.send("g")
			j.rested()
			line := snap(t, c)
			lost := int(line.Lost.Threads)
			all := []*resource.SystemLine{line, snap(t, c)}
			seen := len(ended(all, "work"))
			if seen+lost != children || room > children && lost > 0 || room < children && lost < children-int(room) {
				t.Errorf("%d seen, %d lost of %d", seen, lost, children)
			}
			if after := memory(t, c); after != before {
				t.Errorf("the maps took %d bytes before and take %d", before, after)
			}
			if n := used(t, c); n > 1 || len(c.programs.history) > 1 {
				t.Errorf("%d accounts and %d histories are left", n, len(c.programs.history))
			}
			if n := entries(t, c.programs.Map("target_pids")); n != 1 {
				t.Errorf("%d processes in the target", n)
			}
		})
	}
}

// memory is what the map of threads takes in the kernel.
func memory(t *testing.T, c *Collector) (bytes uint64) {
	t.Helper()
	info, err := c.programs.Map("threads").Info()
	if err != nil {
		t.Fatal(err)
	}
	bytes, _ = info.Memlock()
	return bytes
}

// used counts the threads that have a place in the table. Each has two claims.
func used(t *testing.T, c *Collector) (n int) {
	t.Helper()
	if err := c.programs.table.each(func(uint32, threadKey) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if claims := entries(t, c.programs.Map("claims")); claims != 2*n {
		t.Errorf("%d claims for %d threads", claims, n)
	}
	return n
}

// entries counts those of a map.
func entries(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Processes that have the same number one after the other within an interval are distinguished. Without the kernel's
// types the first is lost, and counted.
func TestNumberUsedAgainWithinInterval(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range hooks {
		t.Run(name, func(t *testing.T) {
			last := exec.Command("true") // of all free numbers the kernel gives out this one last
			if err := last.Run(); err != nil {
				t.Fatal(err)
			}
			tid := strconv.Itoa(last.Process.Pid)
			j := started(t, 0, "reuse", tid, "3", "20", "7")
			o.Target, o.Follow = j.target(), true
			c := opened(t, o)
			j.send("g")
			j.rested()
			line := snap(t, c)
			seen := 0
			for _, ms := range []int64{3, 20, 7} {
				all := ended([]*resource.SystemLine{line}, fmt.Sprint(ms))
				seen += len(all)
				if len(all) == 1 && (all[0].LivedNS < ms*8e5 || all[0].OnCPUNS == 0 ||
					strconv.Itoa(all[0].TID) != tid) {
					t.Errorf("it was to compute for %d ms: %+v", ms, all[0])
				}
			}
			if want := 3; seen+int(line.Lost.Threads) != want || !o.Plain && seen != want {
				t.Errorf("%d seen, %d lost", seen, line.Lost.Threads)
			}
		})
	}
}

// A thread has the name of the program that it runs now, and is reported from the exec on that gives it a name that is
// asked for.
func TestNameAfterExec(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", "read go; exec cat")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close(); cmd.Wait() })
			both, named := o, o
			both.Target, named.Target = bpf.Target{PIDs: []int{cmd.Process.Pid}}, bpf.Target{Comm: "cat"}
			byPID, byName := opened(t, both), opened(t, named)
			snap(t, byPID)
			echo := func(text string) {
				if _, err := in.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			echo("go\nx") // the shell reads byte by byte: the x is cat's
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			snap(t, byName) // from here on it is polled, too
			echo("y")
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*Collector{byPID, byName} {
				if th := thread(t, snap(t, c), cmd.Process.Pid); th.Comm != "cat" || th.OnCPUNS == 0 {
					t.Errorf("%+v", th)
				}
			}
		})
	}
}

// A thread that is not the first and execs takes the first one's number. Its time goes on under that, and nothing
// is left of the other.
func TestExecOfAnotherThread(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range hooks {
		t.Run(name, func(t *testing.T) {
			j := started(t, 0, "become", "doze", "spin")
			o.Target = j.target()
			c := opened(t, o)
			snap(t, c)
			j.send("g")
			for len(j.begin) < 2 {
				j.line()
			}
			snap(t, c)
			j.send("g")
			j.stop()
			line := snap(t, c)
			for _, w := range j.begin {
				if th := thread(t, line, w.tid); th.Comm != w.kind || th.OnCPUNS == 0 || th.Ended {
					t.Errorf("%s: %+v", w.kind, th)
				}
			}
			snap(t, c)
			snap(t, c)
			if n := used(t, c); n != 3 {
				t.Errorf("%d accounts for three threads", n)
			}
		})
	}
}

// The threads of a control group of either version are reported, also one that joins late, and others are not.
func TestControlGroups(t *testing.T) {
	testenv.NeedBPF(t)
	unified := "/sys/fs/cgroup"
	if _, err := os.Stat(unified + "/cgroup.procs"); err != nil {
		unified += "/unified" // next to those of version 1
	}
	for name, hierarchy := range map[string]string{"v1": "/sys/fs/cgroup/memory", "v2": unified} {
		for source, o := range sources {
			if name == "v1" && o.Plain {
				continue // refused: not supported there
			}
			t.Run(name+" "+source, func(t *testing.T) {
				dir := filepath.Join(hierarchy, "llamatap-sched-"+strconv.Itoa(os.Getpid()))
				if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
					testenv.Beyond(t, "control groups in "+hierarchy, err.Error())
				}
				t.Cleanup(func() { os.Remove(filepath.Join(dir, "below")); os.Remove(dir) })
				inside, outside := started(t, 1, "doze"), started(t, 1, "doze")
				t.Cleanup(func() { join(t, hierarchy, inside) })
				o.Target = bpf.Target{Cgroup: dir}
				c := opened(t, o)
				inside.send("g")
				outside.send("g")
				if line := snap(t, c); len(line.Threads) != 0 || len(line.Processes) != 0 {
					t.Errorf("nobody has joined: %+v", line.Processes)
				}
				join(t, filepath.Join(dir, "below"), inside)
				snap(t, c)
				inside.stop()
				outside.stop()
				line := snap(t, c)
				if len(line.Processes) != 1 || line.Processes[0].PID != inside.cmd.Process.Pid ||
					len(line.Threads) == 0 {
					t.Errorf("%+v is not process %d", line.Processes, inside.cmd.Process.Pid)
				}
				if _, ok := line.CgroupPressure["memory"]; ok != (name == "v2") {
					t.Errorf("pressure of the group: %+v", line.CgroupPressure)
				}
			})
		}
	}
}

func join(t *testing.T, group string, j *job) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(j.cmd.Process.Pid)),
		0); err != nil {
		testenv.Beyond(t, "control groups that can be joined in "+group, err.Error())
	}
}

// A process that is added while it runs is reported from then on.
func TestAddPID(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) {
			j := started(t, 1, "doze")
			o.Target = bpf.Target{Later: true}
			c := opened(t, o)
			if line := snap(t, c); len(line.Processes)+len(line.Threads) != 0 {
				t.Errorf("nobody was asked for: %+v", line)
			}
			if err := c.AddPID(j.cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			snap(t, c)
			j.send("g")
			j.stop()
			if doze := thread(t, snap(t, c), j.begin[0].tid); doze.Voluntary == 0 {
				t.Errorf("%+v", doze)
			}
		})
	}
}

// Threads whose places are taken lie elsewhere and are found there.
func TestPlacesAreTaken(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range hooks {
		t.Run(name, func(t *testing.T) {
			j := started(t, 3, "doze", "doze", "spin")
			const size = 1 << 10
			o.Target, o.Threads = bpf.Target{Later: true}, size
			c := opened(t, o)
			for i := range uint32(3) { // where its first worker would lie first
				// nobody has such a number
				other := threadKey{TID: placeOf(uint32(j.begin[0].tid), i)%size + size<<20, Start: i}
				now := uint64(bpf.MonoNS())
				if err := c.programs.table.begin(other, accounts{Born: now, Mark: now << stateBits}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.AddPID(j.cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			snap(t, c)
			j.send("g")
			j.stop()
			line := snap(t, c)
			for _, w := range j.begin {
				if th := thread(t, line, w.tid); th.OnCPUNS == 0 || th.Voluntary == 0 {
					t.Errorf("%+v", th)
				}
			}
			snap(t, c)
			if n := used(t, c); n != 4 {
				t.Errorf("%d places for four threads", n)
			}
		})
	}
}

// Without the rights for BPF the figures are polled, and the line says why and what to do.
func TestWithoutRights(t *testing.T) {
	testenv.NeedRoot(t)
	if err := testenv.OnThread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		c, err := Open(Options{Target: bpf.Target{PIDs: []int{os.Getpid()}}})
		if err != nil {
			return err
		}
		text := strings.Join(c.Missing(), "; ")
		if c.Origin() != resource.OriginProc || !strings.Contains(text, "setcap cap_bpf") {
			err = fmt.Errorf("from %s: %s", c.Origin(), text)
		}
		return errors.Join(err, c.Close())
	}); err != nil {
		t.Error(err)
	}
}
