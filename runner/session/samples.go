//go:build linux

package session

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/store/stream"
)

// samples records sampled accesses to the memory of the model's process, from before its first instruction to its
// end. They wait until the tap has reported what the process did at their time: then it is known which region they
// touched, in which phase, for which token. A nil one records nothing.
type samples struct {
	timeline
	tap      *config.Tap
	set      *sample.Set
	queue    *sample.Queue
	spaces   *sample.Spaces // of what the map of regions does not know
	started  int            // the process that was started
	recorded func() int
	pages    *writtenPages // nil: they are not scanned
	table    *ledger.Table
	rows     *sampleRows // nil: there is no run directory yet
	others   uint64      // samples of processes that are not recorded
	looked   int64       // when the tap was looked at, the time before
	closed   bool
}

// newSamples prepares what was asked for. Nothing is opened before the process is there.
func newSamples(o Options) *samples {
	if !o.Tap.Records(config.Samples) {
		return nil
	}
	r := &samples{tap: o.Tap, queue: sample.NewQueue(o.Tap.Out), spaces: sample.NewSpaces()}
	if o.Tap.SamplesWith(config.SamplePages) {
		if o.Command.Env == nil {
			o.Command.Env = os.Environ()
		}
		o.Command.Env = append(o.Command.Env, sample.WrittenEnv)
	}
	return r
}

// ready opens the collectors for the model's process, which is held before its first instruction. Where one cannot
// be had nothing runs.
func (r *samples) ready(pid int) error {
	if r == nil {
		return nil
	}
	r.started = pid
	choices := make([][]string, len(r.tap.Samples))
	for i, c := range r.tap.Samples {
		choices[i] = c
	}
	var err error
	r.set, err = sample.Open(sample.Options{
		Choices: choices, PID: pid, Children: true, Period: r.tap.SamplesPeriod, RingBytes: int(r.tap.SamplesRing),
		MostRing: mostRing(r.tap.Memory),
		Mapped:   r.spaces.Observe,
	}, r.queue)
	if err != nil {
		return fmt.Errorf("--tap-samples %s", err)
	}
	_, _ = r.spaces.Look(pid, stream.MonoNS()) // what is not seen now is reported as it comes
	for _, c := range r.set.Collectors() {
		for _, note := range c.Notes {
			fmt.Fprintf(present.Err, "llamatap: --tap-samples %s: %s\n", c.Name, note)
		}
	}
	return nil
}

// mostRing is how large the ring of a CPU may be, so that all of them are an eighth of --tap-memory.
func mostRing(memory config.Bytes) int {
	most := 1
	for int64(most)*2*int64(runtime.NumCPU())*8 <= int64(memory) {
		most *= 2
	}
	return most
}

// start lets the collectors be read. recorded is the process that the tap records, 0 while there is none.
func (r *samples) start(recorded func() int) {
	if r != nil {
		r.recorded = recorded
		r.set.Start()
	}
}

// pid is the process whose accesses are recorded: the one that was started, or the first that it started which
// computes.
func (r *samples) pid() int { return cmp.Or(r.recorded(), r.started) }

// open lets the accesses be written into the table of the run.
func (r *samples) open(of *run, table *ledger.Table, regions *regionMap) {
	r.table = table
	table.About(func() (key, value string) { return sample.MetadataKey, r.use().Text() })
	r.rows = &sampleRows{times: &r.timeline, regions: regions.Map(), block: r.tap.KVBlock, out: table.Writer(),
		offset: of.unixOffset()}
	if r.set.Pages() {
		r.pages = &writtenPages{to: r.rows, pid: r.pid}
	}
}

// Buffer notes memory whose written pages are to be found.
func (r *samples) Buffer(b *ggmlhooks.Buffer) error { r.pages.buffer(b); return nil }

// BufferEnd ends that.
func (r *samples) BufferEnd(e ggmlhooks.BufferEnd) error { r.pages.end(e.ID); return nil }

// Begin begins a graph, for which the model waits where written pages are found.
func (r *samples) Begin(x *ggmlhooks.Execution) error {
	r.pages.begin(x.MonoNS)
	return r.timeline.Begin(x)
}

// End ends a graph, for which the model waits likewise.
func (r *samples) End(x *ggmlhooks.Execution) error {
	r.pages.computed(x.End.MonoNS)
	return r.timeline.End(x)
}

// idle notes that the tap's queue has been read, and writes what is known by now. It is for the goroutine that
// reads the tap. The error is the table's.
func (r *samples) idle() error {
	if r == nil {
		return nil
	}
	known := r.looked - int64(tapLag)
	r.looked = stream.MonoNS()
	if r.rows == nil || r.closed {
		return nil
	}
	r.label(min(known, r.timeline.decided()), false)
	return r.rows.out.Tick(r.looked)
}

// label writes the samples of before a time. last: no more executions follow.
func (r *samples) label(upto int64, last bool) {
	pid := int32(r.pid())
	r.spaces.Gather()
	r.pages.write(upto, last)
	r.queue.Before(upto, func(a *memtrace.Access) {
		if a.PID != pid {
			r.others++
			return
		}
		r.spaces.Apply(a.TimeNS)
		r.rows.writeSample(a, r.spaces.Of(pid), last)
	})
	r.spaces.Apply(upto)
	r.spaces.Forget(upto - int64(time.Second))
}

// sampleRows are the rows of sampled accesses in the table of the run.
type sampleRows struct {
	times   *timeline
	regions *memtrace.RegionMap
	block   int // cells
	out     *ledger.Writer
	offset  int64 // of Unix time
	tallies sample.Tallies
	dropped uint64 // rows that the table did not take
}

// writeSample writes one sample. space, which may be nil, is of what the map of regions does not know. last says that
// nothing comes any more.
func (r *sampleRows) writeSample(a *memtrace.Access, space *sample.Space, last bool) {
	row := sample.Row{Access: *a, Moment: r.times.moment(a.TimeNS, last), Block: -1}
	row.Hit = r.regions.Address(a.Addr, a.TimeNS)
	if row.Hit.Region == nil && space != nil {
		row.Hit, row.Unlisted = space.Map().Address(a.Addr, a.TimeNS), true
		row.Variable = space.Variable(a.Addr, a.Size)
	}
	if row.Symbol == "" && a.IP != 0 && space != nil {
		row.Symbol = space.Function(a.IP)
	}
	r.write(&row)
}

// write completes a row from its region, and writes it. What reaches into several blocks of cells is of none.
// Behind a failure of the disk rows are counted alone.
func (r *sampleRows) write(row *sample.Row) {
	if region := row.Hit.Region; region != nil && !row.Unlisted {
		row.Offset = int64(region.Offset + row.Hit.Offset)
		if row.Block = block(region, row.Hit.Offset, r.block); row.Size > 0 &&
			block(region, row.Hit.Offset+row.Size-1, r.block) != row.Block {
			row.Block = -1
		}
		if b := r.regions.Buffer(region.Buffer); b != nil {
			row.Device = b.Device
		}
	}
	if row.Write(r.out, r.offset) != nil { // the table says why
		r.dropped++
		return
	}
	r.tallies[row.Collector].Count(row)
}

// block is the block of cells that a place of a cache's keys lies in, -1 where it is none. Of values it is not
// known how they lie.
func block(r *memtrace.Region, offset uint64, cells int) int64 {
	if r.Type != memtrace.KVCache || r.Part != "k" || len(r.Shape) < 2 || cells < 1 {
		return -1
	}
	rows := uint64(1)
	for _, n := range r.Shape[1:] {
		rows *= uint64(n)
	}
	if rows == 0 || r.Bytes%rows != 0 {
		return -1
	}
	return int64(offset / (r.Bytes / rows) / uint64(cells))
}

// stop ends the collectors. The process has ended, or is not recorded any more.
func (r *samples) stop() {
	if r != nil {
		r.set.Stop()
	}
}

// Close writes what is left and completes the table. It may be called twice.
func (r *samples) Close() error {
	if r == nil || r.closed {
		return nil
	}
	r.stop()
	r.closed = true
	if r.rows != nil {
		r.label(math.MaxInt64, true)
		r.pages.close()
		_ = r.rows.out.Close() // the table reports its error
	}
	return errors.Join(r.set.Close(), r.queue.Close())
}

// summaryText reports what was sampled, and lost.
func (r *samples) summaryText() string { return "samples   " + r.use().Words() }

// use is what metadata.json says.
func (r *samples) use() *sample.Use {
	u := r.set.Use(&r.rows.tallies)
	_, lost := r.table.Rows()
	u.Others, u.LostTable = r.others, uint64(lost)+r.rows.dropped
	if err := r.table.Err(); err != nil {
		u.Error = explain(err, r.tap).Error()
	}
	if r.pages != nil {
		u.Missing = r.pages.missing
		u.Collectors = append(u.Collectors, sample.CollectorUse{
			Collector: sample.Pages, Samples: r.pages.use.Pages, Tally: r.rows.tallies[memtrace.CollectorPage],
			Pages: &r.pages.use,
		})
	}
	u.Complete()
	return u
}
