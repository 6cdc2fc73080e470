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
	"github.com/llamatap/llamatap/resource/bpf"
)

// anyCall is the op of events that are polled: all reads or all writes, whatever their names.
const anyCall = "any"

// processIO is what /proc/PID/io says: calls that read and write, and their bytes.
type processIO struct {
	comm                  string
	reads, writes         uint64
	readBytes, writeBytes uint64
}

// poller reads /proc/PID/io of the watched processes, where BPF cannot run.
type poller struct {
	target bpf.Target
	last   map[int]processIO // by process
}

// add begins to watch a process.
func (p *poller) add(pid int) {
	p.target.PIDs = append(p.target.PIDs, pid)
	if io, ok := p.readProcess(pid); ok {
		p.last[pid] = io
	}
}

// readAll reads the figures of every watched process. A process that is gone, or that may not be looked into, is
// left out.
func (p *poller) readAll() (map[int]processIO, error) {
	pids := p.target.PIDs
	if len(pids) == 0 && !p.target.Later {
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
	processIOs := map[int]processIO{}
	for _, pid := range pids {
		if io, ok := p.readProcess(pid); ok {
			processIOs[pid] = io
		}
	}
	return processIOs, nil
}

// readProcess reads the figures of a process if it is watched and can be read.
func (p *poller) readProcess(pid int) (io processIO, ok bool) {
	comm, errComm := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	text, errIO := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if errComm != nil || errIO != nil {
		return processIO{}, false
	}
	io = parseIO(string(text))
	io.comm = strings.TrimSuffix(string(comm), "\n")
	return io, p.target.Comm == "" || io.comm == p.target.Comm
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

// events returns the events read and write of all calls that read and write, if they are wanted.
func (p *poller) events(length time.Duration, wanted bool) ([]resource.ProfEvent, error) {
	now, err := p.readAll()
	if err != nil {
		return nil, err
	}
	before := p.last
	p.last = now
	if !wanted {
		return nil, nil
	}
	reads := polledEvent("read", length, now, before, func(p processIO) (uint64,
		uint64) {
		return p.reads, p.readBytes
	})
	writes := polledEvent("write", length, now, before, func(p processIO) (uint64,
		uint64) {
		return p.writes, p.writeBytes
	})
	return slices.Concat(reads, writes), nil
}

// polledEvent makes the event of a kind of calls; none where there were none. Of a process that has just begun
// everything is new.
func polledEvent(name string, length time.Duration, now, before map[int]processIO,
	of func(processIO) (calls, bytes uint64)) []resource.ProfEvent {
	e := &resource.ProfSyscall{Syscall: name, Op: anyCall}
	e.Type, e.Origin = resource.ProfTypeSyscall, resource.OriginProc
	for pid, p := range now {
		calls, bytes := of(p)
		calls0, bytes0 := of(before[pid])
		if calls < calls0 || calls == calls0 { // nothing, or another process with this number
			continue
		}
		e.TopCallers = append(e.TopCallers, resource.ProfCaller{PID: pid, Comm: p.comm, Count: calls - calls0,
			Bytes: bytes - bytes0})
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
