package prof

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// anyCall is the op of events that are polled: all reads or all writes, whatever their names.
const anyCall = "any"

// processIO is what /proc/PID/io says: calls that read and write, and their bytes.
type processIO struct {
	comm                  string
	reads, writes         uint64
	readBytes, writeBytes uint64
}

// beginPolled takes the state that the first snapshot is a difference to.
func (c *Collector) beginPolled() (err error) {
	if c.o.Target.Cgroup != "" {
		return fmt.Errorf("without BPF programs no control group can be watched; use --pid: %s", strings.Join(c.missing, "; "))
	}
	c.polled, err = c.readIO()
	return err
}

// readIO reads the figures of every watched process. A process that is gone, or that may not be looked into, is
// left out.
func (c *Collector) readIO() (map[int]processIO, error) {
	pids := c.o.Target.PIDs
	if len(pids) == 0 && !c.o.Target.Later {
		names, err := os.ReadDir("/proc")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if pid, err := strconv.Atoi(n.Name()); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	all := map[int]processIO{}
	for _, pid := range pids {
		if io, ok := c.readProcess(pid); ok {
			all[pid] = io
		}
	}
	return all, nil
}

// readProcess reads the figures of a process if it is watched and can be read.
func (c *Collector) readProcess(pid int) (io processIO, ok bool) {
	comm, errComm := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	text, errIO := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if errComm != nil || errIO != nil {
		return processIO{}, false
	}
	io = parseIO(string(text))
	io.comm = strings.TrimSuffix(string(comm), "\n")
	return io, c.o.Target.Comm == "" || io.comm == c.o.Target.Comm
}

// parseIO reads /proc/PID/io. What it does not have is 0.
func parseIO(text string) processIO {
	var io processIO
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch key {
		case "rchar":
			io.readBytes = n
		case "wchar":
			io.writeBytes = n
		case "syscr":
			io.reads = n
		case "syscw":
			io.writes = n
		}
	}
	return io
}

// poll returns the events read and write of all calls that read and write.
func (c *Collector) poll(length time.Duration) ([]resource.ProfEvent, error) {
	now, err := c.readIO()
	if err != nil {
		return nil, err
	}
	before := c.polled
	c.polled = now
	if !c.wanted[resource.ProfTypeSyscall] {
		return nil, nil
	}
	reads := polledEvent("read", length, now, before, func(p processIO) (uint64, uint64) { return p.reads, p.readBytes })
	writes := polledEvent("write", length, now, before, func(p processIO) (uint64, uint64) { return p.writes, p.writeBytes })
	return slices.Concat(reads, writes), nil
}

// polledEvent makes the event of a kind of calls; none where there were none. Of a process that has just begun
// everything is new.
func polledEvent(name string, length time.Duration, now, before map[int]processIO, of func(processIO) (calls, bytes uint64)) []resource.ProfEvent {
	e := &resource.ProfSyscall{Syscall: name, Op: anyCall}
	e.Type, e.Origin = resource.ProfTypeSyscall, resource.OriginProc
	for pid, p := range now {
		calls, bytes := of(p)
		calls0, bytes0 := of(before[pid])
		if calls < calls0 || calls == calls0 { // nothing, or another process with this number
			continue
		}
		e.TopCallers = append(e.TopCallers, resource.ProfCaller{PID: pid, Comm: p.comm, Count: calls - calls0, Bytes: bytes - bytes0})
		e.Count += calls - calls0
		e.Bytes += bytes - bytes0
	}
	if e.Count == 0 {
		return nil
	}
	slices.SortFunc(e.TopCallers, func(a, b resource.ProfCaller) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.PID, b.PID))
	})
	e.Callers = len(e.TopCallers)
	e.TopCallers = e.TopCallers[:min(topCallers, len(e.TopCallers))]
	e.BytesPerCall = float64(e.Bytes) / float64(e.Count)
	if length > 0 {
		e.ThroughputBS = float64(e.Bytes) / length.Seconds()
	}
	return []resource.ProfEvent{e}
}
