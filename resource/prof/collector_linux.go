package prof

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Options say what is counted of whom. The zero value is everything that this package counts, of all processes.
type Options struct {
	Target bpf.Target
	// Follow takes what a process of Target.PIDs starts, and what that starts, as well. It needs a kernel with BTF.
	Follow bool
	Types  []resource.ProfType // --only; empty is all. Without syscall, sync and net no BPF program is loaded
	// SampledOneOf is N of --sample-read-write: one of N reads and writes is timed, at random. All are counted. 0
	// and 1 time all.
	SampledOneOf uint32
	Stamper      Stamper
	Also         []Source // make the events disk, mem and sched
	// Plain takes the programs for kernels without BTF, Poll reads /proc alone.
	Plain, Poll bool
	// ByCalls counts traffic by system calls though this kernel has the hooks of sockets.
	ByCalls bool

	callers uint32 // room for so many calls of processes, for tests
}

// A Collector counts system calls and traffic. Its methods are for one goroutine.
type Collector struct {
	o        Options
	set      *bpf.Set // nil where only other collectors' events are wanted
	wanted   map[resource.ProfType]bool
	interval uint32
	last     time.Time
	lastMono int64
	// snapshots is how many were taken.
	snapshots uint64
	calls     callCounter
	nets      netCounter
	poll      *poller           // nil with BPF
	losses    map[string]uint64 // reported so far
	missing   []string
}

// Hooks that a kernel may lack: those of sockets came with 6.3.
var optional = []string{
	"on_send", "on_receive", "on_send_plain", "on_receive_plain", "on_rename", "on_exec_plain",
	"on_state", "on_retransmit", "on_retransmit_synack", "on_state_plain", "on_retransmit_plain",
	"on_retransmit_synack_plain",
}

// Open begins to count. Where BPF programs cannot run, reads and writes are polled from /proc, and Missing says what is
// not recorded and why. It is an error where the target cannot be watched.
func Open(o Options) (*Collector, error) {
	if len(o.Types) == 0 {
		o.Types = resource.ProfTypes
	}
	c := &Collector{o: o, wanted: map[resource.ProfType]bool{}, interval: 1}
	for _, t := range o.Types {
		c.wanted[t] = true
	}
	c.last, c.lastMono = time.Now(), bpf.MonoNS()
	if !c.counts() {
		return c, nil
	}
	if !o.Poll {
		err := c.load(o.Plain, o.ByCalls)
		if errors.Is(err, bpf.ErrMissing) && !o.Plain && !errors.Is(err, fs.ErrPermission) {
			c.missing = append(c.missing, "the kernel's types cannot be used: "+err.Error())
			err = c.load(true, o.ByCalls)
		}
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, bpf.ErrMissing) {
			return nil, err
		}
		c.missing = append(c.missing, "of system calls only the numbers and bytes of reads and writes are recorded, "+
			"as /proc has them: "+err.Error())
	}
	if o.Target.Cgroup != "" {
		return c, fmt.Errorf("without BPF programs no control group can be watched; use --pid: %s",
			strings.Join(c.missing, "; "))
	}
	c.poll = &poller{target: o.Target}
	var err error
	c.poll.last, err = c.poll.readAll()
	return c, err
}

// counts reports whether there is something to count for this package itself.
func (c *Collector) counts() bool {
	return c.wanted[resource.ProfTypeSyscall] || c.wanted[resource.ProfTypeSync] || c.wanted[resource.ProfTypeNet]
}

// load loads the programs, and once more where it turns out that the kernel lacks the hooks of sockets.
func (c *Collector) load(plain, byCalls bool) error {
	spec, err := bpf.Object("prof")
	if err != nil {
		return err
	}
	c.drop(spec, byCalls)
	set, err := bpf.Load(spec, bpf.Options{
		Target: c.o.Target, Plain: plain, Optional: slices.DeleteFunc(slices.Clone(optional),
			func(name string) bool { return spec.Programs[name] == nil }),
		MaxEntries: c.o.sizes(),
		Set: map[string]any{
			"count_calls": c.wanted[resource.ProfTypeSyscall], "count_waits": c.wanted[resource.ProfTypeSync],
			"net_by_calls": c.wanted[resource.ProfTypeNet] && byCalls, "sampled_one_of": max(1, c.o.SampledOneOf),
			"follow": c.o.follows(),
			// Since 6.16 the hook of retransmitted segments passes an error after the socket and the segment.
			"retransmit_tells": bpf.Arguments("tcp_retransmit_skb") > 3, "retransmit_error": retransmitError(),
		},
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"on_send", "on_receive", "on_send_plain", "on_receive_plain"} {
		if set.Absent[name] != nil && !byCalls {
			return errors.Join(set.Close(), c.load(plain, true))
		}
	}
	c.set = set
	c.calls = callCounter{set: set, wanted: c.wanted, sampled: c.o.SampledOneOf, calls: map[caller]tally{}}
	c.nets = netCounter{set: set, byCalls: byCalls, nets: map[netKey]netTally{}}
	if set.Plain && c.o.follows() {
		c.missing = append(c.missing, "what watched processes start is not watched: that needs a kernel with "+
			"CONFIG_DEBUG_INFO_BTF=y")
	}
	for name, err := range set.Absent {
		c.missing = append(c.missing, "events net are not complete: "+name+": "+err.Error())
	}
	slices.Sort(c.missing)
	return c.begin(c.interval)
}

// follows reports whether what the target starts belongs to it.
func (o *Options) follows() bool {
	return o.Follow && (o.Target.Later || len(o.Target.PIDs) > 0)
}

// Room of the maps whose entries are processes, and of those whose entries are threads or sockets. A map of
// counters takes its size once for each processor, and is kept below mapBytes down to roomFew.
const (
	room, roomFew = 8192, 1024
	threads       = 32768
	threadsFew    = 8192
	mapBytes      = 32 << 20
)

// sizes are those of the maps.
func (o *Options) sizes() map[string]uint32 {
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		processors = runtime.NumCPU()
	}
	counters := func(bytes int) uint32 { return uint32(min(room, max(roomFew, mapBytes/(bytes*processors)))) }
	all := map[string]uint32{
		"calls": counters(int(unsafe.Sizeof(callStat{}))), "nets": counters(int(unsafe.Sizeof(netTally{}))),
		"opens": threads, "processes": room,
	}
	if len(o.Target.PIDs) > 0 && !o.Follow {
		all = map[string]uint32{"calls": roomFew, "nets": roomFew, "opens": threadsFew, "processes": roomFew}
	}
	if o.callers > 0 {
		all["calls"] = o.callers
	}
	return all
}

// drop takes out the programs that nobody asked for.
func (c *Collector) drop(spec *ebpf.CollectionSpec, byCalls bool) {
	var names []string
	if !c.wanted[resource.ProfTypeSyscall] && !c.wanted[resource.ProfTypeSync] && !byCalls {
		names = append(names, "on_enter", "on_exit")
	}
	if !c.wanted[resource.ProfTypeNet] {
		names = append(names, "on_state", "on_retransmit", "on_retransmit_synack")
	}
	if !c.wanted[resource.ProfTypeNet] || byCalls {
		names = append(names, "on_send", "on_receive")
	}
	if !c.o.follows() {
		names = append(names, "on_fork")
	}
	for _, name := range names {
		delete(spec.Programs, name)
		delete(spec.Programs, name+"_plain")
	}
}

// begin passes the number of the interval that begins to the programs, which keep the longest call of each.
func (c *Collector) begin(number uint32) error {
	if err := c.set.Map("interval").Put(uint32(0), number); err != nil {
		return fmt.Errorf("begin an interval of prof: %w", err)
	}
	return nil
}

// Snapshot returns the events since the snapshot before, as a *bpf.Draft of []resource.ProfEvent: Stamper.Correlate is
// asked when that is completed.
func (c *Collector) Snapshot(now time.Time) (any, error) {
	mono := bpf.MonoNS()
	length := time.Duration(mono - c.lastMono)
	var events []resource.ProfEvent
	if c.counts() {
		ours, err := c.ownEvents(length, mono)
		if err != nil {
			return nil, err
		}
		events = ours
	}
	also, from := c.snapshotSources(now), c.last
	c.snapshots++
	number := c.snapshots
	c.last, c.lastMono = now, mono
	return bpf.NewDraft(mono, func() any {
		for _, more := range also {
			events = append(events, more()...)
		}
		events = slices.DeleteFunc(events, func(e resource.ProfEvent) bool { return !c.wanted[e.Head().Type] })
		slices.SortStableFunc(events, func(a, b resource.ProfEvent) int {
			return slices.Index(resource.ProfTypes, a.Head().Type) - slices.Index(resource.ProfTypes, b.Head().Type)
		})
		c.o.Stamper.next(number, from, now, mono, length).On(events)
		return events
	}), nil
}

// snapshotSources asks the other sources. One that fails is left out from then on, and Missing says why; the rest goes
// on.
func (c *Collector) snapshotSources(now time.Time) []func() []resource.ProfEvent {
	var events []func() []resource.ProfEvent
	c.o.Also = slices.DeleteFunc(slices.Clone(c.o.Also), func(source Source) bool {
		more, err := source(now)
		if err != nil {
			c.missing = append(c.missing,
				"events of another collector, from "+now.UTC().Format(time.RFC3339)+" on: "+err.Error())
			return true
		}
		events = append(events, more)
		return false
	})
	return events
}

// ownEvents returns the events that this package counts itself.
func (c *Collector) ownEvents(length time.Duration, mono int64) ([]resource.ProfEvent, error) {
	if c.set == nil {
		return c.poll.events(length, c.wanted[resource.ProfTypeSyscall])
	}
	ended := c.interval
	c.interval++
	if err := c.begin(c.interval); err != nil {
		return nil, err
	}
	names := map[uint32]string{} // of every process that was counted
	err := bpf.Each(c.set.Map("processes"), func(tgid uint32,
		comm [16]byte) {
		names[tgid] = unix.ByteSliceToString(comm[:])
	})
	if err != nil {
		return nil, err
	}
	var events []resource.ProfEvent
	if c.wanted[resource.ProfTypeSyscall] || c.wanted[resource.ProfTypeSync] {
		if events, err = c.calls.events(ended, length, mono, names); err != nil {
			return nil, err
		}
	}
	if c.wanted[resource.ProfTypeNet] {
		nets, err := c.nets.events(length, names)
		if err != nil {
			return nil, err
		}
		events = append(events, nets...)
	}
	for _, e := range events {
		e.Head().Origin = c.Origin()
	}
	if len(events) > 0 {
		if events[0].Head().Lost, err = c.newLosses(); err != nil {
			return nil, err
		}
	}
	return events, c.forget(names)
}

// newLosses returns what was lost since it was asked before; nil if nothing.
func (c *Collector) newLosses() (map[string]uint64, error) {
	now, err := c.Losses()
	if err != nil {
		return nil, err
	}
	before := c.losses
	c.losses = now
	lost := map[string]uint64{}
	for cause, n := range now {
		if n > before[cause] {
			lost[cause] = n - before[cause]
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	return lost, nil
}

// forget removes the names of processes that have ended and of which nothing is kept any more.
func (c *Collector) forget(names map[uint32]string) error {
	kept := map[uint32]bool{}
	for k := range c.calls.calls {
		kept[k.TGID] = true
	}
	for k := range c.nets.nets {
		kept[k.TGID] = true
	}
	for tgid := range names {
		if kept[tgid] || !processEnded(tgid) {
			continue
		}
		if err := remove(c.set.Map("processes"), tgid); err != nil {
			return err
		}
	}
	return nil
}

// processEnded reports whether a process has ended. Its counters do not change then. BPF programs know processes by
// their numbers in the first namespace; in another one the process is taken to be running.
func processEnded(tgid uint32) bool {
	return tgid != 0 && firstNamespace() && errors.Is(unix.Kill(int(tgid), 0), unix.ESRCH)
}

// firstNamespace reports whether this process sees process numbers as the kernel does: the first namespace has a fixed
// inode.
var firstNamespace = sync.OnceValue(func() bool {
	var s unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &s) == nil && s.Ino == 0xEFFFFFFC
})

func remove(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget an ended process in BPF map %s: %w", m, err)
	}
	return nil
}

// AddPID adds a process to a target that is restricted to processes.
func (c *Collector) AddPID(pid int) error {
	if c.poll != nil {
		c.poll.add(pid)
	}
	if c.set == nil {
		return nil
	}
	return c.set.AddPID(pid)
}

// Programs returns the cost of the programs since they were loaded.
func (c *Collector) Programs() ([]bpf.ProgramStat, error) {
	if c.set == nil {
		return nil, nil
	}
	return c.set.Programs()
}

// lostCauses are the counters of the map lost.
var lostCauses = [...]string{"compat", "open", "caller", "net", "owner", "child"}

const lostCaller = 2

// Losses returns what could not be counted since the beginning, by cause: compat (calls of 32-bit programs), open
// (calls that were counted but not timed: too many threads), caller (calls counted without their process: too many
// processes), net (traffic, for the same reason), owner (TCP sockets whose process could not be kept), child (processes
// that could not be followed). Causes that did not occur are absent.
func (c *Collector) Losses() (map[string]uint64, error) {
	losses := map[string]uint64{}
	if c.set == nil {
		return losses, nil
	}
	for i, cause := range lostCauses {
		n, err := bpf.Sum(c.set.Map("lost"), uint32(i))
		if err != nil {
			return nil, err
		}
		if n > 0 {
			losses[cause] = n
		}
	}
	return losses, nil
}

// Missing says what could not be had, one sentence each: why BPF does not run, which hook the kernel lacks, which
// source failed.
func (c *Collector) Missing() []string { return c.missing }

// Origin says where the figures come from, in the words of resource.
func (c *Collector) Origin() string {
	if c.set == nil {
		return resource.OriginProc
	}
	return resource.OriginOf(c.set.Plain)
}

// Close ends counting. It is safe to call twice.
func (c *Collector) Close() error {
	if c.set == nil {
		return nil
	}
	return c.set.Close()
}
