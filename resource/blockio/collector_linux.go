package blockio

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Options say what is watched. The zero value is every request of the machine.
type Options struct {
	Interval time.Duration // between snapshots, as it is written
	Target   bpf.Target    // of the task that submits a request, or of the group that owns what is written back
	// what a process of Target.PIDs starts, and what that starts, belongs to it; needs a kernel with BTF
	Follow  bool
	Devices []string // disks or partitions, by name; none is all. At most 8
	Strap   bool     // STRAP-LLM's bounds in latency_histogram, twice too large
	Plain   bool     // the programs for kernels without BTF though this one has it
	Poll    bool     // /proc/diskstats though BPF programs could run

	buckets, rows int           // for tests: how many, powers of two; 0 is all
	patience      time.Duration // for tests: how old a request is before it is looked after
	unified       bool          // for tests: groups of version 2 though there is a blkio of version 1
	old           bool          // for tests: as on a kernel before 6.5
}

// maxDevices is how many devices the programs can be restricted to.
const maxDevices = 8

// How old a request is before the kernel is asked whether it still has it, and before one without an address, for
// which it cannot be asked, is given up.
const (
	patience      = 200 * time.Millisecond
	plainPatience = time.Minute
)

// A Collector watches block devices. It is used by one goroutine at a time.
type Collector struct {
	o      Options
	only   map[uint32]bool
	names  *names
	groups *groups
	set    *bpf.Set // nil where it polls
	why    error
	last   int64 // CLOCK_MONOTONIC of the last snapshot

	memory *memory
	areas  map[int]uint64 // of each disk: requests times nanoseconds
	depths map[int]int64  // of each disk at the last snapshot
	lost   [lostCount]uint64
	missed uint64
	since  map[request]int64 // when a request that is not new was first seen

	stats []diskstats // where it polls
}

// Open begins to watch. Where BPF programs cannot run, it polls /proc/diskstats and Missing reports why; it fails where
// that cannot be read either, or where a device is not known.
func Open(o Options) (*Collector, error) {
	c := &Collector{
		o: o, only: map[uint32]bool{}, names: newNames(os.DirFS("/")),
		areas: map[int]uint64{}, depths: map[int]int64{}, since: map[request]int64{},
	}
	for _, name := range o.Devices {
		ids, err := c.names.find(name)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			c.only[id] = true
		}
	}
	if len(c.only) > maxDevices {
		return nil, fmt.Errorf("%d block devices are wanted, with those that they lie on: at most %d can be",
			len(c.only), maxDevices)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts") // without it groups have no names
	c.groups = newGroups(string(mounts), o.unified)
	if !o.Poll {
		err := c.load()
		if err == nil {
			return c, c.begin()
		}
		if !errors.Is(err, bpf.ErrMissing) {
			return nil, err
		}
		c.why = err
	}
	return c, c.begin()
}

// begin takes the state that the first snapshot is a difference to.
func (c *Collector) begin() (err error) {
	c.last = bpf.MonoNS()
	if c.set == nil {
		c.stats, err = readDiskstats()
		return err
	}
	c.missed, err = misses(c.set)
	return err
}

// load loads the programs and maps their memory.
func (c *Collector) load() error {
	spec, err := bpf.Object("blockio")
	if err != nil {
		return err
	}
	if size := spec.Variables["table"].Size(); size != tableSize || spec.Maps["counts"].ValueSize != countsSize {
		return fmt.Errorf("the BPF object's table has %d bytes and counts %d, not %d and %d", size,
			spec.Maps["counts"].ValueSize, tableSize, countsSize)
	}
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("%w: count processors: %w", bpf.ErrMissing, err)
	}
	rows := c.o.roomForRows(processors)
	set := map[string]any{
		"processors": uint32(processors), "row_count": uint32(fixedRows + rows), "row_mask": uint32(rows - 1),
		"groups_v1": c.groups.v1,
	}
	if c.o.buckets > 0 {
		set["bucket_mask"] = uint32(c.o.buckets - 1)
	}
	devices := [maxDevices]uint32{}
	for i := range devices {
		devices[i] = math.MaxUint32
	}
	copy(devices[:], slices.Sorted(maps.Keys(c.only)))
	set["only_devices"], set["by_device"] = devices, len(c.only) > 0
	starts := hasStarts() && !c.o.old
	set["starts"] = starts
	if !c.o.Follow || len(c.o.Target.PIDs) == 0 && !c.o.Target.Later {
		delete(spec.Programs, "on_fork")
		delete(spec.Programs, "on_exit")
	}
	options := bpf.Options{
		Target: c.o.Target, Plain: c.o.Plain, Set: set,
		MaxEntries: map[string]uint32{"counts": uint32((processors + 1) * (fixedRows + rows))},
		Optional:   []string{"is_alive", "give_up", "on_moved"},
		Manual:     []string{"is_alive", "give_up"},
	}
	if !starts {
		for _, name := range []string{"on_start", "on_done"} {
			delete(spec.Programs, name)
		}
	}
	if options.TakesPlain() {
		fields, err := plainFields()
		if err != nil {
			return err
		}
		for name, at := range fields {
			set[name] = at
		}
	}
	loaded, err := bpf.Load(spec, options)
	if err != nil {
		return err
	}
	c.set = loaded
	if c.memory, err = newMemory(c.set, processors, fixedRows+rows); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// hasStarts reports whether the kernel has the hook at the start of a request (6.5 and newer).
func hasStarts() bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	_, err = kernel.AnyTypeByName("btf_trace_block_io_start")
	return err == nil
}

// roomForRows is for how many rows with a process there is room: fewer where many processors count each for itself, so
// that these take at most 48 MiB, or have 128 each.
func (o *Options) roomForRows(processors int) int {
	if o.rows > 0 {
		return o.rows
	}
	rows := allRows - fixedRows
	for rows > 128 && rows*processors*countsSize > 48<<20 {
		rows /= 2
	}
	return rows
}

// Missing says why BPF programs do not run, or nil. The error wraps bpf.ErrMissing.
func (c *Collector) Missing() error { return c.why }

// Origin says which programs run, in the words of resource.
func (c *Collector) Origin() string {
	if c.set == nil {
		return resource.OriginProc
	}
	return resource.OriginOf(c.set.Plain)
}

// AddPID adds a process to a target of processes, while it is watched.
func (c *Collector) AddPID(pid int) error {
	if c.set == nil {
		return nil
	}
	if err := c.set.AddPID(pid); err != nil {
		return err
	}
	c.memory.widen()
	return nil
}

// Programs returns the cost of the programs; nothing while polling.
func (c *Collector) Programs() ([]bpf.ProgramStat, error) {
	if c.set == nil {
		return nil, nil
	}
	return c.set.Programs()
}

// Close ends the watching.
func (c *Collector) Close() error {
	var errs []error
	if c.memory != nil {
		errs = append(errs, c.memory.close())
		c.memory = nil
	}
	if c.set != nil {
		errs = append(errs, c.set.Close())
	}
	return errors.Join(errs...)
}

// Snapshot returns a *resource.BlockLine of what happened since the one before, or since Open.
func (c *Collector) Snapshot(now time.Time) (any, error) {
	c.names.beginSnapshot()
	c.groups.fresh = false
	if c.set == nil {
		return c.poll(now)
	}
	if c.memory == nil {
		return nil, errors.New("block devices are no longer watched: the collector is closed")
	}
	return c.read(now)
}

// header makes a line's beginning, of a snapshot taken at mono.
func (c *Collector) header(now time.Time, mono int64, origin string) resource.HostHeader {
	h := resource.NewHostHeader(now, mono, c.o.Interval, time.Duration(mono-c.last), origin)
	c.last = mono
	return h
}

// poll makes a line of /proc/diskstats.
func (c *Collector) poll(now time.Time) (*resource.BlockLine, error) {
	stats, err := readDiskstats()
	if err != nil {
		return nil, err
	}
	line := &resource.BlockLine{HostHeader: c.header(now, bpf.MonoNS(), resource.OriginProc)}
	polled(line, c.stats, stats, c.names, c.only)
	c.stats = stats
	if c.why != nil {
		line.Missing = append(line.Missing, c.why.Error())
	}
	if !c.o.Target.Any() {
		line.Missing = append(line.Missing, "the target: /proc/diskstats counts all processes together")
	}
	return line, nil
}

func readDiskstats() ([]diskstats, error) {
	f, err := os.Open("/proc/diskstats")
	if err != nil {
		return nil, fmt.Errorf("watch block devices: %w", err)
	}
	defer f.Close()
	return parseDiskstats(f)
}
