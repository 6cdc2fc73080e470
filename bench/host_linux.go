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
	var sum time.Duration
	var parts string
	for i, a := range after {
		runs, spent := a.Runs-before[i].Runs, a.Time-before[i].Time
		sum += spent
		if runs*100 >= events {
			parts += fmt.Sprintf(", %s %.0f ns × %.2f", a.Name, float64(spent)/float64(runs), float64(runs)/float64(events))
		}
	}
	per := float64(sum) / float64(events)
	line := Line{
		Section: "host", Name: fmt.Sprintf("%s: BPF programs per %s", load.collector, load.event), Value: per, Unit: "ns",
		Figure: fmt.Sprintf("%.0f events/s%s", float64(events)/took.Seconds(), parts),
	}
	if gate, ok := hostGates[load.event]; ok {
		line.Gate, line.Verdict = fmt.Sprintf("≤ %.0f ns", gate), under(per, gate)
	}
	h.Table.Add(line)
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
	var sum byte
	for !stop.Load() {
		// Without read-ahead and faults around, so that each page is a fault.
		if err := errors.Join(unix.Madvise(pages, unix.MADV_DONTNEED), unix.Madvise(pages, unix.MADV_RANDOM)); err != nil {
			return events, err
		}
		for at := 0; at < len(pages); at += 16 * 4096 { // the kernel maps 16 pages around the one that is missing
			sum += pages[at]
			events++
		}
	}
	runtime.KeepAlive(sum)
	return events, nil
}
