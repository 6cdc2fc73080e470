package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/runner/watch"
)

// hostLoad makes events of one kind until it is told to stop, and counts them.
type hostLoad struct {
	collector string
	event     string
	only      []string // of prof
	run       func(h HostCost, stop *atomic.Bool) (events uint64, err error)
}

var hostLoads = []hostLoad{
	{"block", "block request", nil, directReads},
	{"system", "context switch", nil, pingPong},
	{"prof", "system call", []string{"syscalls"}, shortReads},
	{"waits", "page fault", nil, softFaults},
}

// Run measures and fills the table. What cannot be measured here is noted.
func (h HostCost) Run(ctx context.Context) error {
	counting, err := bpf.EnableStats()
	if err != nil {
		h.Table.Note("host", err.Error())
		return nil
	}
	defer counting.Close()
	if h.blank, err = blankCost(min(h.Time/10, time.Second)); err != nil {
		h.Table.Note("host", fmt.Sprintf("the cost of counting is not known and not taken off: %v", err))
	} else {
		h.Table.Add(Line{Section: "host", Name: "a BPF program that does nothing, as the kernel counts it", Value: h.blank, Unit: "ns", Figure: "taken off below: it is the price of counting"})
	}
	for _, load := range hostLoads {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h.Progress("host: " + load.event)
		if err := h.measure(load); err != nil {
			h.Table.Note("host", fmt.Sprintf("%s: %v", load.event, err))
		}
	}
	return nil
}

func (h HostCost) measure(load hostLoad) error {
	if dir := bpf.MountTracefs(); dir != "" {
		h.Table.Note("host", "mounted tracefs at "+dir)
	}
	opened := watch.Open([]string{load.collector}, watch.Request{
		Interval: time.Second, Target: bpf.Target{PIDs: []int{os.Getpid()}}, Only: load.only,
	})[0]
	if opened.Err != nil {
		return opened.Err
	}
	collector := opened.Collector
	defer collector.Close()
	costed, ok := collector.(bpf.Costed)
	if !ok {
		return errors.New("the collector runs no BPF programs here")
	}
	before, err := costed.Programs()
	if err != nil || len(before) == 0 {
		return errors.Join(err, errors.New("the collector runs no BPF programs here"))
	}
	var stop atomic.Bool
	began := time.Now()
	timer := time.AfterFunc(h.Time/time.Duration(len(hostLoads)), func() { stop.Store(true) })
	defer timer.Stop()
	events, err := load.run(h, &stop)
	took := time.Since(began)
	if err != nil {
		return err
	}
	after, err := costed.Programs()
	if err != nil || events == 0 {
		return errors.Join(err, errors.New("no event came"))
	}
	h.tell(load, before, after, events, took)
	return nil
}

// tell adds a line for the event, and one for each program that ran for at least a hundredth of the events.
func (h HostCost) tell(load hostLoad, before, after []bpf.ProgramStat, events uint64, took time.Duration) {
	var sum float64
	var parts string
	for i, a := range after {
		runs, spent := float64(a.Runs-before[i].Runs), float64(a.Time-before[i].Time)
		if runs == 0 {
			continue
		}
		spent = max(0, spent-h.blank*runs)
		sum += spent
		if runs*100 >= float64(events) {
			parts += fmt.Sprintf(", %s %.0f ns × %.2f", a.Name, spent/runs, runs/float64(events))
		}
	}
	per := sum / float64(events)
	line := Line{
		Section: "host", Name: fmt.Sprintf("%s: BPF programs per %s", load.collector, load.event), Value: per, Unit: "ns",
		Figure: fmt.Sprintf("%.0f events/s%s", float64(events)/took.Seconds(), parts),
	}
	if gate, ok := hostGates[load.event]; ok {
		line.Gate, line.Verdict = fmt.Sprintf("≤ %.0f ns", gate), under(per, gate)
	}
	h.Table.Add(line)
}

// blankCost is what the kernel counts for a program that does nothing, in ns per run.
func blankCost(d time.Duration) (float64, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "blank", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch", License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	attached, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return 0, err
	}
	defer attached.Close()
	var stop atomic.Bool
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	if _, err := pingPong(HostCost{}, &stop); err != nil {
		return 0, err
	}
	stats, err := program.Stats()
	if err != nil || stats.RunCount == 0 {
		return 0, errors.Join(err, errors.New("no switch was seen"))
	}
	return float64(stats.Runtime) / float64(stats.RunCount), nil
}

// loadBytes is the size of the file that loads read.
const loadBytes = 64 << 20

// loadFile makes a file of a load.
func (h HostCost) loadFile() (string, error) {
	path := filepath.Join(h.Dir, "host-load")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for range loadBytes / len(block) {
		if _, err := file.Write(block); err != nil {
			return "", errors.Join(err, file.Close(), os.Remove(path))
		}
	}
	return path, errors.Join(file.Sync(), file.Close())
}

// directReads reads 4 KiB at a time past the page cache.
func directReads(h HostCost, stop *atomic.Bool) (events uint64, err error) {
	path, err := h.loadFile()
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read past the page cache in %s: %w", h.Dir, err)
	}
	defer unix.Close(fd)
	buf, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(buf)) }()
	for ; !stop.Load(); events++ {
		if _, err := unix.Pread(fd, buf, int64(events*40961*4096%loadBytes)); err != nil {
			return events, err
		}
	}
	return events, nil
}

// pingPong hands a byte back and forth between two threads of one processor: each handing over is a switch.
func pingPong(_ HostCost, stop *atomic.Bool) (uint64, error) {
	var there, back [2]int
	if err := errors.Join(unix.Pipe2(there[:], unix.O_CLOEXEC), unix.Pipe2(back[:], unix.O_CLOEXEC)); err != nil {
		return 0, err
	}
	one := func() error {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(0)
		return unix.SchedSetaffinity(0, &set)
	}
	answered := make(chan error, 1)
	go func() {
		err := one()
		b := make([]byte, 1)
		for err == nil {
			var n int
			if n, err = unix.Read(there[0], b); n == 0 {
				break
			}
			if err == nil {
				_, err = unix.Write(back[1], b)
			}
		}
		answered <- errors.Join(err, unix.Close(there[0]), unix.Close(back[1]))
	}()
	asked := make(chan error, 1)
	var switches uint64
	go func() {
		err := one()
		for b := make([]byte, 1); err == nil && !stop.Load(); switches += 2 {
			if _, err = unix.Write(there[1], b); err == nil {
				_, err = unix.Read(back[0], b)
			}
		}
		asked <- errors.Join(err, unix.Close(there[1]), unix.Close(back[0]))
	}()
	return switches, errors.Join(<-asked, <-answered)
}

// shortReads reads one byte at a time of a file in the page cache.
func shortReads(h HostCost, stop *atomic.Bool) (events uint64, err error) {
	path, err := h.loadFile()
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for b := make([]byte, 1); !stop.Load(); events++ {
		if _, err := unix.Pread(int(file.Fd()), b, 0); err != nil {
			return events, err
		}
	}
	return events, nil
}

// softFaults touches the pages of a mapped file that lies in the page cache, again and again.
func softFaults(h HostCost, stop *atomic.Bool) (events uint64, err error) {
	path, err := h.loadFile()
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	pages, err := unix.Mmap(int(file.Fd()), 0, loadBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(pages)) }()
	var begun, ended unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &begun); err != nil {
		return 0, err
	}
	var sum byte
	for !stop.Load() {
		// The kernel maps what lies around in the page cache too, so that not each page is a fault: faults are
		// counted by the kernel.
		if err := unix.Madvise(pages, unix.MADV_DONTNEED); err != nil {
			return 0, err
		}
		for at := 0; at < len(pages); at += 4096 {
			sum += pages[at]
		}
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ended); err != nil {
		return 0, err
	}
	events = uint64(ended.Minflt - begun.Minflt + ended.Majflt - begun.Majflt)
	runtime.KeepAlive(sum)
	return events, nil
}
