//go:build linux

package session

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// hostFiles are the files of the host collectors in a run directory.
var hostFiles = map[string]string{"block": rundir.BlockIOName, "system": rundir.SystemName, "prof": rundir.ProfName,
	selfName: rundir.HostSelfName}

// selfName is the collector of what the collectors cost, which runs beside any other.
const selfName = "self"

// hostSide watches what the kernel does for the model's process from before its start to its end. Its collectors
// are asked by a goroutine of their own, and each other host by another one: a slow host delays nobody. A nil one
// watches nothing.
type hostSide struct {
	timeline
	interval time.Duration
	sources  []bpf.Source // of this host
	remote   []bpf.Source // the other hosts
	follow   []bpf.Follower
	lines    []*hostLines
	watching []*watching // nil: not begun, or closed
	missing  []hostMissing
	run      string // its id; "" until the run directory is there
	mu       sync.Mutex
	interv   uint64
	upto     atomic.Int64 // what the tap reported up to here is known
	looked   int64        // when the tap was looked at, the time before
	waits    *waits
	others   []*process.RemoteHost // to which there is a connection
	unmet    []hostMissing         // to which there is none
}

// hostMissing is a collector that was asked for and does not run.
type hostMissing struct {
	Collector string `json:"collector"`
	Reason    string `json:"reason"`
}

// newHostSide opens the collectors that were asked for, with a target that has no process yet. One that cannot run
// is printed, and the rest continues.
func newHostSide(o Options) *hostSide {
	if len(o.Tap.Host)+len(o.Tap.Hosts) == 0 {
		return nil
	}
	h := &hostSide{interval: o.Tap.HostInterval}
	target := bpf.Target{Later: true}
	if dir := bpf.MountTracefs(); dir != "" {
		fmt.Fprintf(present.Err, "llamatap: --tap-host: mounted tracefs at %s: the tracepoints of a kernel "+
			"without BTF need it\n", dir)
	}
	perInterval := slices.DeleteFunc(slices.Clone(o.Tap.Host), func(name string) bool { return name == waitsName })
	for _, opened := range OpenCollectors(perInterval,
		CollectorOptions{Interval: h.interval, Target: target, Correlate: h.correlate, Computed: h.computed}) {
		h.addCollector(opened)
	}
	if o.Tap.CollectsHost(waitsName) {
		if err := h.openWaits(target, o.Tap.HostDetails); err != nil {
			h.leaveOut(waitsName, err)
		}
	}
	costed := map[string]bpf.Costed{}
	for _, s := range h.sources {
		if c, ok := s.Collector.(bpf.Costed); ok {
			costed[s.Name] = c
		}
	}
	if h.waits != nil {
		costed[waitsName] = h.waits.collector
	}
	c, err := process.OpenSelf(process.SelfOptions{Interval: h.interval, Costed: costed})
	h.addCollector(Collector{Name: selfName, Collector: c, Err: err}) // last of an interval
	h.dial(o.Tap)
	return h
}

// waitsName is the collector that writes a line for each graph, and not for each interval.
const waitsName = "waits"

func (h *hostSide) leaveOut(name string, err error) {
	h.missing = append(h.missing, hostMissing{name, err.Error()})
	fmt.Fprintf(present.Err, "llamatap: --tap-host %s is left out: %v\n", name, err)
}

// addCollector adds a collector that was opened.
func (h *hostSide) addCollector(opened Collector) {
	if opened.Err != nil {
		h.leaveOut(opened.Name, opened.Err)
		return
	}
	for _, missing := range opened.Missing {
		fmt.Fprintf(present.Err, "llamatap: --tap-host %s: %s\n", opened.Name, missing)
	}
	lines := &hostLines{name: hostFiles[opened.Name]}
	h.lines = append(h.lines, lines)
	h.sources = append(h.sources, bpf.Source{Name: opened.Name, Collector: opened.Collector, Lines: lines})
	if f, ok := opened.Collector.(bpf.Follower); ok {
		h.follow = append(h.follow, f)
	}
}

// ready takes the model's process into the target before its first instruction.
func (h *hostSide) ready(pid int) {
	if h == nil {
		return
	}
	for _, f := range h.follow {
		if err := f.AddPID(pid); err != nil {
			fmt.Fprintf(present.Err, "llamatap: --tap-host: %v\n", err)
		}
	}
}

// start asks the collectors from now on.
func (h *hostSide) start() {
	if h == nil {
		return
	}
	h.watching = append(h.watching, startWatching("--tap-host", h.interval, h.isKnown, h.sources...))
	for _, host := range h.remote {
		h.watching = append(h.watching, startWatching("--tap-hosts", h.interval, nil, host))
	}
}

// openFiles makes the files in the run directory.
func (h *hostSide) openFiles(dir *rundir.Dir, unwritten *atomic.Int64) error {
	h.mu.Lock()
	h.run = dir.ID()
	h.mu.Unlock()
	for _, l := range h.lines {
		if err := l.open(dir, unwritten); err != nil {
			return err
		}
	}
	return nil
}

// idle notes that the tap's queue has been read: what was reported before the look before this one is known. It is for
// the goroutine that reads the tap.
func (h *hostSide) idle() {
	if h != nil {
		h.upto.Store(h.looked)
		h.waits.reported(h.looked)
		h.looked = stream.MonoNS()
	}
}

// isKnown reports whether what the tap reported before a time is known.
func (h *hostSide) isKnown(mono int64) bool { return h.upto.Load() >= mono }

// stop takes the last snapshots and ends the collectors; nothing is written afterwards.
func (h *hostSide) stop() {
	if h != nil {
		h.upto.Store(math.MaxInt64) // nothing more comes
		for _, w := range h.watching {
			w.cancel() // all take their last snapshots at a time
		}
		for _, w := range h.watching {
			w.stop()
		}
	}
}

// Close ends the collectors and their files.
func (h *hostSide) Close() error {
	if h == nil {
		return nil
	}
	h.stop()
	var errs []error
	for _, w := range h.watching {
		errs = append(errs, w.watch.Close())
	}
	if h.watching == nil {
		for _, s := range slices.Concat(h.sources, h.remote) {
			errs = append(errs, s.Collector.Close())
		}
	}
	h.watching, h.sources, h.remote = nil, nil, nil
	errs = append(errs, h.waits.Close())
	for _, l := range h.lines {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// correlate says what the model did in an interval.
func (h *hostSide) correlate(from, to time.Time) string {
	now, mono := time.Now(), stream.MonoNS()
	begin, end := mono-int64(now.Sub(from)), mono-int64(now.Sub(to))
	h.mu.Lock()
	h.interv++
	id := resource.CorrID{Run: h.run, Interval: h.interv}
	h.mu.Unlock()
	if id.Run == "" {
		id.Run = noRun
	}
	id.Phase, id.First, id.Last = h.timeline.within(begin, end)
	id.Tokens = id.First >= 0
	return id.String()
}

// computed says how much of a time the model computed graphs in.
func (h *hostSide) computed(from, to int64) resource.GraphTime {
	c := h.timeline.computed(from, to)
	c.Known = c.Known && h.isKnown(to)
	return c
}

// noRun stands for the run in ids until it has one; the lines wait for it.
const noRun = "run_to_come"

// hostUse is what metadata.json says of host collectors.
type hostUse struct {
	Files      []hostFile    `json:"files,omitempty"`
	Missing    []hostMissing `json:"missing,omitempty"`
	IntervalNS int64         `json:"interval_ns"`
}

// hostFile is what a collector wrote.
type hostFile struct {
	File  string            `json:"file"`
	Lines uint64            `json:"lines"`
	Bytes int64             `json:"bytes"`
	Lost  map[string]uint64 `json:"lost,omitempty"` // lines, by cause
}

func (h *hostSide) use() hostUse {
	use := hostUse{Missing: h.missing, IntervalNS: int64(h.interval)}
	for _, l := range h.lines {
		use.Files = append(use.Files, l.use())
	}
	return use
}

// summaryText reports what was written.
func (h *hostSide) summaryText() string {
	var parts []string
	for _, l := range h.lines {
		stats := l.stats()
		text := fmt.Sprintf("%s %s", l.name, present.Plural(stats.Lines, "line"))
		for cause, n := range stats.Lost {
			text += fmt.Sprintf(", LOST %d (%s)", n, cause)
		}
		parts = append(parts, text)
	}
	for _, m := range h.missing {
		parts = append(parts, "no "+m.Collector)
	}
	return "host      " + strings.Join(parts, "; ")
}

// hostLines are a collector's lines. Those that come before the run directory is there wait for it; of a run
// without one nothing is kept.
type hostLines struct {
	name    string
	mu      sync.Mutex
	waiting [][]byte
	dropped uint64 // of those that waited
	out     *rundir.LineWriter
}

// maxWaiting is how many lines wait for the run directory: a model may take minutes to load.
const maxWaiting = 4096

// Append writes a line. A full disk loses lines, counted, and not the collector.
func (l *hostLines) Append(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		if len(l.waiting) == maxWaiting {
			l.waiting = slices.Delete(l.waiting, 0, maxWaiting/2)
			l.dropped += maxWaiting / 2
		}
		l.waiting = append(l.waiting, bytes.Clone(line))
		return nil
	}
	l.out.Append(0, line)
	return nil
}

func (l *hostLines) open(dir *rundir.Dir, unwritten *atomic.Int64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out, err = rundir.NewLineWriter(rundir.LineOptions{Create: dir.CreateLive, Name: l.name,
		Buffered: unwritten}); err != nil {
		return err
	}
	for _, line := range l.waiting {
		l.out.Append(0, bytes.Replace(line, []byte(`"corr_id":"`+noRun+"-"), []byte(`"corr_id":"`+dir.ID()+"-"), 1))
	}
	l.waiting = nil
	return nil
}

func (l *hostLines) stats() rundir.LineStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return rundir.LineStats{}
	}
	stats := l.out.Stats()
	if l.dropped > 0 {
		stats.Lost[lostBeforeRun] = l.dropped
	}
	return stats
}

// use is what metadata.json says of the file.
func (l *hostLines) use() hostFile {
	stats := l.stats()
	return hostFile{File: l.name, Lines: stats.Lines, Bytes: stats.Bytes, Lost: stats.Lost}
}

// lostBeforeRun is the cause of losing lines of a program that took long until it computed.
const lostBeforeRun = "before_run"

func (l *hostLines) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return nil
	}
	return l.out.Close()
}
