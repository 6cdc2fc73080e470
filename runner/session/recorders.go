//go:build linux

package session

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/rundir"
)

// recorders are the recorders beside that of tensors. One that was not asked for is nil, and so is one that needs the
// run directory until that is there.
type recorders struct {
	run       *run
	memory    int64 // bytes that the table of accesses may hold
	host      *hostSide
	samples   *samples
	monitor   *monitor
	devices   *devices
	events    *events
	kv        *kv
	requests  *requests
	regions   *regionMap
	ledger    *accesses
	moves     *moves        // to devices and back; of a run on several hosts
	table     *ledger.Table // of memory accesses, whoever records them
	maps      processMaps
	parts     []part       // what the run says of them
	unwritten atomic.Int64 // bytes of lines that are not in files yet
}

// part is what a run says of one of its recorders.
type part struct {
	key   string        // in metadata.json; "": nothing is said there
	use   func() any    // its value
	words func() string // lines of the summary; nil: none
}

// newRecorders prepares those that begin before the program: what its start costs is seen.
func newRecorders(r *run, memory int64) *recorders {
	return &recorders{
		run: r, memory: memory, host: newHostSide(r.o), samples: newSamples(r.o), maps: processMaps{run: r},
	}
}

// ready lets whoever watches the model's process begin before its first instruction; nil: it need not be held.
func (r *recorders) ready() func(pid int) error {
	if r.host == nil && r.samples == nil {
		return nil
	}
	return func(pid int) error {
		r.host.ready(pid)
		return r.samples.ready(pid)
	}
}

// start lets the collectors be read. The process has started.
func (r *recorders) start() {
	if r.run.o.Tap.Records(config.Resource) {
		r.devices = openDevices(nvml.Name, os.DirFS("/")) // before anything is computed
	}
	r.host.start()
	r.samples.start(r.run.region.PID)
	r.monitor = startMonitor(r.run.o.Tap, func() int { return cmp.Or(r.run.region.PID(), r.run.pid) })
}

// open makes what needs the run directory, in the order in which a graph is reported to it: the ledger asks the map.
func (r *recorders) open() (all []io.Closer, err error) {
	defer func() {
		if err != nil {
			for _, begun := range all { // a file that stays open keeps the run from being sealed
				err = errors.Join(err, begun.Close())
			}
		}
	}()
	tap, dir := r.run.o.Tap, r.run.dir
	if tap.Records(config.Resource) {
		if r.events, err = newEvents(r.run, r.devices, &r.unwritten); err != nil {
			return all, err
		}
		all = append(all, r.events)
		r.parts = append(r.parts, part{"events", func() any { return r.events.use() }, r.events.summaryText})
		if r.devices != nil {
			r.parts = append(r.parts, part{"energy", func() any { return r.events.Energy }, r.events.energyWords})
		}
	}
	if r.host != nil {
		r.parts = append(r.parts, part{"host_collectors", func() any { return r.host.use() }, r.host.summaryText})
	}
	if followsCells(tap) {
		if r.kv, err = newKV(r.run, r.events); err != nil {
			return all, err
		}
		all = append(all, r.kv)
		if r.kv.file != nil {
			r.parts = append(r.parts, part{words: r.kv.summaryText})
		}
	}
	if tap.Records(config.Requests) {
		if r.requests, err = newRequests(r.run, r.kv); err != nil {
			return all, err
		}
		all = append(all, r.requests)
		p := part{words: r.requests.summaryText}
		if r.requests.export != nil {
			p.key, p.use = "otlp", func() any { return r.requests.export.Counts() }
		}
		r.parts = append(r.parts, p)
		if s := r.run.sample; s != nil {
			r.parts = append(r.parts, part{causeSample, func() any { return s.use }, s.summaryText})
		}
		if out := r.requests.out; out != nil {
			r.parts = append(r.parts, part{key: "kv_events", use: func() any { return out.Use() }})
		}
	}
	if tap.Records(config.Regions) {
		if r.regions, err = newRegionMap(r.run, &r.maps); err != nil {
			return all, err
		}
		all = append(all, r.regions)
		r.parts = append(r.parts, part{words: r.regions.summaryText})
	}
	if tap.Records(config.Ledger) || r.samples != nil {
		r.table = ledger.NewTable(ledger.TableOptions{Folder: dir, Memory: r.memory})
	}
	if tap.Records(config.Ledger) {
		r.ledger = newAccesses(r.run, r.table, r.regions)
		all = append(all, r.ledger)
		r.parts = append(r.parts, part{"ledger", func() any { return r.ledger.use(r.table) }, r.ledger.summaryText})
	}
	if r.samples != nil {
		r.samples.open(r.run, r.table, r.regions)
		all = append(all, r.samples)
		r.parts = append(r.parts, part{"memory_samples", func() any { return r.samples.use() }, r.samples.summaryText})
	}
	if r.host != nil {
		if err := r.host.openFiles(dir, &r.unwritten); err != nil {
			return all, err
		}
		all = append(all, r.host)
		if r.host.waits != nil {
			all = append(all, r.host.waits)
		}
	}
	if len(tap.Hosts) > 0 {
		r.moves = newMoves(tap, r.host)
		all = append(all, r.moves)
		r.parts = append(r.parts, part{"hosts", func() any { return r.moves.use() }, r.moves.summaryText})
		if err := r.moves.lines.open(dir, &r.unwritten); err != nil {
			return all, err
		}
	}
	if r.monitor != nil {
		err = r.monitor.lines.open(dir, &r.unwritten)
		r.parts = append(r.parts, part{"process_monitor", func() any { return r.monitor.use() }, nil})
	}
	return all, err
}

// idle writes what is known by now. It is for the goroutine that reads the tap, which has read all of its queue.
func (r *recorders) idle(halted bool) error {
	r.host.idle()
	if halted {
		return nil
	}
	if r.events != nil {
		r.events.Sampled()
	}
	return errors.Join(r.samples.idle(), r.ledger.tick(), r.requests.tick())
}

// needsFrequentIdle reports whether idle reads what the kernel fills up by itself, or what others wait for.
func (r *recorders) needsFrequentIdle() bool { return r.host != nil || r.samples != nil }

// inStep reports whether the model waits for the recorders at each graph.
func (r *recorders) inStep() bool { return r.samples != nil && r.samples.pages != nil }

// stopCollectors takes the last snapshots of the processes.
func (r *recorders) stopCollectors() {
	r.host.stop()
	r.monitor.stop()
}

// Close ends what does not hear of graphs, or began before it could. It may be called twice.
func (r *recorders) Close() error {
	r.devices.end()
	return errors.Join(r.host.Close(), r.samples.Close(), r.monitor.Close())
}

// The most bytes that a row of accesses takes, of the ledger and where samples are among them.
const (
	ledgerRowBytes = 2
	sampleRowBytes = 16
)

// packed is the most bytes that rows take that are in no file of the table of accesses yet. What is written counts
// in the run directory.
func (r *recorders) packed() int64 {
	row := int64(ledgerRowBytes)
	if r.samples != nil {
		row = sampleRowBytes
	}
	if r.table == nil {
		return 0
	}
	return r.table.Unwritten() * row
}

// closeTable completes the table of accesses, when its recorders are closed. What was complete before an error stays.
func (r *recorders) closeTable() error {
	if r.table == nil {
		return nil
	}
	return r.table.Close()
}

// samplesLost reports whether samples of memory accesses are missing.
func (r *recorders) samplesLost() bool {
	return r.samples != nil && r.samples.rows != nil && r.samples.use().Lossy
}

// empty reports whether nothing was to be recorded beside tensors that is worth keeping without them.
func (r *recorders) empty() bool {
	return r.events == nil && r.requests == nil && r.regions == nil && r.ledger == nil && r.host == nil &&
		(r.kv == nil || r.kv.file == nil)
}

// extend adds to metadata.json what was recorded.
func (r *recorders) extend(m *rundir.Metadata) {
	for _, p := range r.parts {
		if p.key != "" {
			extra(m, p.key, p.use())
		}
	}
}

// summaryText reports what was recorded, a line for each.
func (r *recorders) summaryText() (lines []string) {
	for _, p := range r.parts {
		if p.words != nil {
			for line := range strings.Lines(p.words()) {
				lines = append(lines, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return lines
}
