package process

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/procfs"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// rowPrograms are the program of each function that fills in a llama_batch_ext: several traps a row. A llama_batch
// needs none.
var rowPrograms = []struct{ function, program string }{
	{"llama_batch_ext_clear", "llama_batch_ext_clear"}, {"llama_batch_ext_add", "llama_batch_ext_add"},
	{"llama_batch_ext_add_token", "llama_batch_ext_add"}, {"llama_batch_ext_add_embd", "llama_batch_ext_add"},
	{"llama_batch_ext_set_pos", "llama_batch_ext_set_pos"},
	{"llama_batch_ext_set_output_logits", "llama_batch_ext_set_output_logits"},
	{"llama_batch_ext_set_output_embd", "llama_batch_ext_set_output_logits"},
}

// computing are the functions that compute.
var computing = []string{"llama_encode", "llama_decode", "llama_process"}

// ErrNoCalls means that a process shows no calls of llama.cpp. The error that wraps it says why.
var ErrNoCalls = errors.New("no calls of llama.cpp can be seen")

// CallLine is what a process computed in an interval.
type CallLine struct {
	resource.HostHeader
	PID      int           `json:"pid"`
	Library  string        `json:"library"`  // where the functions are
	Contexts []callFigures `json:"contexts"` // that computed something
	Requests []CallRequest `json:"requests"` // that have ended
	// Lost counts events for which there was no room, Unreadable the rows that were not in memory.
	Lost       uint64 `json:"lost_events"`
	Unreadable uint64 `json:"unreadable"`
	// Overhead is what the traps of the programs took of the process's time, of one thread; RowsUnwatched says that
	// they took more than was allowed, and that tokens are not counted since.
	Overhead      float64 `json:"overhead_ratio"`
	RowsUnwatched bool    `json:"rows_unwatched,omitempty"`
}

// Calls watches one process.
type Calls struct {
	Library string // the file whose functions are watched

	pid      int
	interval time.Duration
	set      *bpf.Set
	ring     *ringbuf.Reader
	joiner   joiner
	at       time.Time // of the last snapshot
	counted  [3]uint64 // as calls.bpf.c has the counters
	most     float64   // overhead
	trapNS   float64
	rows     []link.Link // of rowPrograms; nil: removed
}

// OpenCalls attaches the programs to a running process. Where their traps take more than a share of its time, those
// that count tokens are removed again. Its errors wrap [ErrNoCalls], or [bpf.ErrMissing] where the machine or the
// rights do not suffice.
func OpenCalls(pid int, interval time.Duration, most float64) (*Calls, error) {
	path, name, err := library(pid)
	if err != nil {
		return nil, err
	}
	spec, err := bpf.Object("calls")
	if err != nil {
		return nil, err
	}
	var manual []string
	for program := range spec.Programs {
		manual = append(manual, program)
	}
	c := &Calls{Library: name, pid: pid, interval: interval, most: most, at: time.Now()}
	if c.set, err = bpf.Load(spec, bpf.Options{Manual: manual, Target: bpf.Target{PIDs: []int{pid}}}); err != nil {
		return nil, err
	}
	if c.ring, err = ringbuf.NewReader(c.set.Map("events")); err == nil {
		err = c.attach(path)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// attach puts the programs to the functions that the library has: those of rows first, so that a call is seen with
// them.
func (c *Calls) attach(path string) error {
	file, err := link.OpenExecutable(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoCalls, c.Library, err)
	}
	behind, err := landingPads(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoCalls, c.Library, err)
	}
	if c.trapNS, err = trapCost(c.set.Program("trap")); err != nil {
		return err
	}
	put := func(function, program string, returns bool) (link.Link, error) {
		at := file.Uprobe
		o := &link.UprobeOptions{PID: c.pid, Offset: behind[function]}
		if returns {
			at, o.Offset = file.Uretprobe, 0
		}
		l, err := at(function, c.set.Program(program), o)
		if errors.Is(err, link.ErrNoSymbol) { // of another version
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("%w: attach to %s of %s: %w; it takes root, and a kernel with "+
				"CONFIG_UPROBE_EVENTS=y",
				bpf.ErrMissing, function, c.Library, err)
		}
		return l, nil
	}
	for _, p := range rowPrograms {
		if l, err := put(p.function, p.program, false); err != nil {
			return err
		} else if l != nil {
			c.rows = append(c.rows, l)
		}
	}
	found := false
	for _, function := range append([]string{"llama_memory_seq_add"}, computing...) {
		l, err := put(function, function, false)
		if err != nil {
			return err
		} else if l == nil {
			continue
		}
		c.set.Keep(l)
		if !slices.Contains(computing, function) {
			continue
		}
		if l, err = put(function, "returned", true); err != nil {
			return err
		}
		c.set.Keep(l)
		found = true
	}
	if !found {
		return fmt.Errorf("%w: %s has no symbol %s", ErrNoCalls, c.Library, strings.Join(computing, ", "))
	}
	return nil
}

// landingPads are how many bytes of a function come before its first instruction that does something: endbr64, where
// indirect jumps may land. A trap there costs twice as much, for the kernel executes the instruction out of place.
func landingPads(path string) (map[string]uint64, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, _ := file.Symbols()
	dynamic, _ := file.DynamicSymbols()
	behind := map[string]uint64{}
	for _, s := range append(symbols, dynamic...) {
		if !strings.HasPrefix(s.Name, "llama_") || int(s.Section) >= len(file.Sections) || s.Section == elf.SHN_UNDEF {
			continue
		}
		code := make([]byte, 4)
		section := file.Sections[s.Section]
		if n, _ := section.ReadAt(code, int64(s.Value-section.Addr)); n == 4 && string(code) == "\xf3\x0f\x1e\xfa" {
			behind[s.Name] = 4
		}
	}
	return behind, nil
}

// trapped does nothing, under a program.
//
//go:noinline
func trapped() {}

// trapCost is what a trap costs on this machine, in nanoseconds: measured on this process.
func trapCost(program *ebpf.Program) (float64, error) {
	const batch, enough = 10, 20 * time.Millisecond
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, fmt.Errorf("measure what a trap costs: %w", err)
	}
	all, err := mappings(os.Getpid())
	if err != nil {
		return 0, err
	}
	var address uint64
	pc := uint64(reflect.ValueOf(trapped).Pointer())
	for _, m := range all {
		if uint64(m.StartAddr) <= pc && pc < uint64(m.EndAddr) {
			address = pc - uint64(m.StartAddr) + uint64(m.Offset)
		}
	}
	l, err := self.Uprobe("trapped", program, &link.UprobeOptions{PID: os.Getpid(), Address: address})
	if err != nil {
		return 0, fmt.Errorf("%w: measure what a trap costs: %w; it takes root, and a kernel with "+
			"CONFIG_UPROBE_EVENTS=y",
			bpf.ErrMissing, err)
	}
	defer l.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := math.Inf(1)
	for begun := time.Now(); time.Since(begun) < enough; { // the least: whoever else ran meanwhile does not count
		at := bpf.MonoNS()
		for range batch {
			trapped()
		}
		least = min(least, float64(bpf.MonoNS()-at)/batch)
	}
	return least, nil
}

// library finds the file that has llama.cpp's functions: as the kernel opens it, and as the process calls it.
func library(pid int) (path, name string, err error) {
	all, err := mappings(pid)
	if err != nil {
		return "", "", err
	}
	for _, m := range all {
		if !strings.HasPrefix(m.Pathname[strings.LastIndexByte(m.Pathname, '/')+1:], "libllama.so") {
			continue
		}
		for _, p := range []string{fmt.Sprintf("/proc/%d/root%s", pid, m.Pathname), // another mount namespace
			fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.StartAddr, m.EndAddr)} { // a replaced file
			if _, err := os.Stat(p); err == nil {
				return p, m.Pathname, nil
			}
		}
	}
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	name, _ = os.Readlink(exe)
	file, err := elf.Open(exe)
	if err != nil {
		return "", "", fmt.Errorf("%w: process %d: %w", ErrNoCalls, pid, err)
	}
	defer file.Close()
	symbols, _ := file.Symbols() // none in a stripped one
	dynamic, _ := file.DynamicSymbols()
	for _, s := range append(symbols, dynamic...) {
		if (s.Name == "llama_decode" || s.Name == "llama_process") && s.Section != elf.SHN_UNDEF {
			return exe, name, nil
		}
	}
	return "", "", fmt.Errorf("%w: process %d has no libllama.so mapped, and %s no symbol llama_decode: it is another "+
		"program, or linked statically and stripped: use a build with shared libraries, or one with symbols",
		ErrNoCalls, pid, name)
}

// mappings are what a process has mapped.
func mappings(pid int) (all []*procfs.ProcMap, err error) {
	process, err := procfs.NewProc(pid)
	if err == nil {
		all, err = process.ProcMaps()
	}
	var at *os.PathError
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("process %d: %w: its memory map can be read as its user or as root, where the kernel "+
			"allows it",
			pid, os.ErrPermission)
	}
	if errors.As(err, &at) {
		return nil, fmt.Errorf("process %d: %w: give the id of a process that runs", pid, at.Err)
	}
	return all, err
}

// Snapshot returns a *CallLine of what was computed since the last one.
func (c *Calls) Snapshot(now time.Time) (any, error) { return c.Line(now, false) }

// Line is what was computed since the last one. With all, it has the requests that are under way too.
func (c *Calls) Line(now time.Time, all bool) (*CallLine, error) {
	c.ring.SetDeadline(time.Unix(1, 0)) // past: what is there, without waiting
	var r ringbuf.Record
	for {
		err := c.ring.ReadInto(&r)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read calls: %w", err)
		}
		if err := c.joiner.add(r.RawSample); err != nil {
			return nil, err
		}
	}
	mono := bpf.MonoNS()
	line := &CallLine{PID: c.pid, Library: c.Library, HostHeader: resource.NewHostHeader(now, mono, c.interval,
		now.Sub(c.at), resource.OriginBPF)}
	line.Contexts, line.Requests = c.joiner.flush(mono, all)
	c.at = now
	var hits uint64
	for i, to := range []*uint64{&line.Lost, &line.Unreadable, &hits} {
		n, err := bpf.Sum(c.set.Map("counters"), uint32(i))
		if err != nil {
			return nil, err
		}
		*to, c.counted[i] = n-c.counted[i], n
	}
	if line.ActualS > 0 {
		line.Overhead = float64(hits) * c.trapNS / 1e9 / line.ActualS
	}
	if line.Overhead > c.most && c.rows != nil {
		if err := c.closeRows(); err != nil {
			return nil, err
		}
		c.joiner.unwatched = true
	}
	line.RowsUnwatched = c.joiner.unwatched
	return line, nil
}

func (c *Calls) closeRows() (err error) {
	for _, l := range c.rows {
		err = errors.Join(err, l.Close())
	}
	c.rows = nil
	return err
}

// Close removes the programs.
func (c *Calls) Close() error {
	var err error
	if c.ring != nil {
		err = c.ring.Close()
	}
	return errors.Join(c.closeRows(), c.set.Close(), err)
}
