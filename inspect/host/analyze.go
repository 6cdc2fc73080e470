package host

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Options is what to analyse, and how.
type Options struct {
	// Block and System are files of block I/O and system metrics; "" for none.
	Block, System string
	// Prof is a file of events of llamatap host prof; "" for none.
	Prof string
	// Run is the run directory that they belong to; "" for none.
	Run string
	// Percentiles are the latency percentiles to compute, in percent, above 0 and at most 100; nil for 50, 95 and 99.
	// Latencies at the highest are compared with metrics.
	Percentiles []float64
	// Window in seconds puts snapshots together to windows of that length, before percentiles over time and
	// correlations; 0: none.
	Window float64
	// Lag is how many intervals metrics are moved to either side.
	Lag int
	// Top bounds the devices in the report; 0: all.
	Top int
	// Progress, where it is set, is called with the bytes of the files that were read, of all.
	Progress func(done, total int64)
	// Strap takes bounds of buckets without a slot as STRAP-LLM's, twice as high as they should be.
	Strap bool
}

// topIDs is the number of ids in the report.
const topIDs = 10

// state is an analysis in progress.
type state struct {
	Options
	report  *Report
	bounds  bounds
	devices *devices
	ops     operations
	metrics []metricSample
	left    int64 // snapshots of metrics that are not compared
	offCPU  ids
	faults  ids
	compute map[float64]bool // ids of threads that computed graphs, at most maxIDs
	entries struct {
		n, beyond int64
		longest   float64
	}
	reasons ByReason // of all threads
	read    func(n int)
	split   bool // the file contains reasons
}

// Analyze reads the files and reports on them. For a missing file the error wraps fs.ErrNotExist.
func Analyze(o Options) (*Report, error) {
	if len(o.Percentiles) == 0 {
		o.Percentiles = []float64{50, 95, 99}
	}
	o.Percentiles = slices.Compact(slices.Sorted(slices.Values(o.Percentiles)))
	a := &state{Options: o, report: &Report{Run: o.Run, WindowS: o.Window, percents: o.Percentiles}}
	a.read = a.meter()
	a.devices = newDevices(o.Percentiles[len(o.Percentiles)-1])
	if err := a.readBlock(); err != nil {
		return nil, err
	}
	if err := a.readSystem(); err != nil {
		return nil, err
	}
	if o.Prof != "" {
		var err error
		if a.report.Prof, err = readProf(o.Prof, o.Percentiles, a.read); err != nil {
			return nil, err
		}
	}
	a.finish()
	return a.report, a.join()
}

// open opens a file of snapshots and hands its lines on.
func open(path, remedy string, l *Lines, each func([]byte) error) error {
	// a link that the user names; find takes none in a run directory
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	file, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: %s", path, fs.ErrNotExist, remedy)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	l.Path = path
	return readLines(metered{file, l.read}, l, each)
}

// metered reports how many bytes were read.
type metered struct {
	io.Reader
	read func(n int) // nil: nobody asks
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if m.read != nil {
		m.read(n)
	}
	return n, err
}

// meter returns what is called with the bytes that are read of the files.
func (o *Options) meter() func(n int) {
	if o.Progress == nil {
		return nil
	}
	done, total := int64(0), int64(0)
	for _, path := range []string{o.Block, o.System, o.Prof} {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
		}
	}
	return func(n int) {
		done += int64(n)
		o.Progress(min(done, total), total)
	}
}

// The remedies for files that are not there.
const (
	blockRemedy  = "record one with 'llamatap host block', or give one with --input, or a run directory"
	profRemedy   = "record one with 'llamatap host prof', or leave --prof out"
	systemRemedy = "record one with 'llamatap host system', or leave --system-metrics out"
)

// readBlock reads the file of block I/O.
func (a *state) readBlock() error {
	if a.Block == "" {
		return nil
	}
	source := &Source{Lines: Lines{read: a.read}}
	err := a.eachBlock(&source.Lines, func(s *blockSnapshot) {
		source.addSnapshot(s.time, s.seconds)
		source.addRecording(&s.how, s.offset)
		a.devices.add(s)
		a.ops.add(s.line)
		s.line = nil
	}, a.devices.addSnapshot)
	if err != nil {
		return err
	}
	if source.Snapshots == 0 {
		return noSnapshots(&source.Lines, errSystemLine, "block I/O", "--system-metrics")
	}
	a.report.Block = source
	return nil
}

// noSnapshots says what is wrong with a file in which there is nothing.
func noSnapshots(l *Lines, other error, what, flag string) error {
	switch {
	case l.BadWhy == other.Error() && other != errNoObject:
		return fmt.Errorf("%s: %w: give it with %s", l.Path, other, flag)
	case l.Total == 0:
		return fmt.Errorf("%s: no snapshots of %s in it yet: let the recorder run for an interval or more", l.Path,
			what)
	}
	return fmt.Errorf("%s: no snapshots of %s in %d lines, the first is bad: %s; give a file that 'llamatap host' or "+
		"STRAP-LLM wrote", l.Path, what, l.Total, cmp.Or(l.BadWhy, "unknown"))
}

// eachBlock hands on every snapshot of block I/O as it was read, and those that windows are made of.
func (a *state) eachBlock(l *Lines, read, window func(*blockSnapshot)) error {
	a.bounds = bounds{}
	w := windows[blockSnapshot]{width: a.Window, out: window}
	err := open(a.Block, blockRemedy, l, func(text []byte) error {
		s, err := parseBlock(text, a.Strap, &a.bounds)
		if err != nil {
			return err
		}
		read(s)
		w.addSnapshot(s, s.time, s.merge)
		return nil
	})
	w.flush()
	return err
}

// readSystem reads the file of system metrics.
func (a *state) readSystem() error {
	if a.System == "" {
		return nil
	}
	source := &Source{Lines: Lines{read: a.read}}
	err := a.eachSystem(&source.Lines, func(s *systemSnapshot) {
		source.addSnapshot(s.time, s.seconds)
		source.addRecording(&s.how, s.offset)
		a.countIDs(s)
	}, func(s *systemSnapshot) {
		if len(a.metrics) < maxSamples {
			a.metrics = append(a.metrics, metricSample{s.time, s.seconds, s.metric})
		} else {
			a.left++
		}
	})
	if err != nil {
		return err
	}
	if source.Snapshots == 0 {
		return noSnapshots(&source.Lines, errBlockLine, "system metrics", "--input")
	}
	a.report.System = source
	return nil
}

// eachSystem hands on every snapshot of system metrics, as eachBlock does.
func (a *state) eachSystem(l *Lines, read, window func(*systemSnapshot)) error {
	w := windows[systemSnapshot]{width: a.Window, out: window}
	err := open(a.System, systemRemedy, l, func(text []byte) error {
		s, err := parseSystem(text)
		if err != nil {
			return err
		}
		read(s)
		w.addSnapshot(s, s.time, s.merge)
		return nil
	})
	w.flush()
	return err
}

// countIDs adds what a snapshot says of processes and threads.
func (a *state) countIDs(s *systemSnapshot) {
	for id, n := range s.offCPU {
		a.offCPU.add(id, n.v/1e6)
		if n.v > 0 {
			a.entries.n++
			a.entries.longest = max(a.entries.longest, n.v/1e6)
			if s.seconds > 0 && n.v/1e9 > s.seconds {
				a.entries.beyond++
			}
		}
	}
	for id, n := range s.faults {
		a.faults.add(id, n.v)
	}
	use, computed, longest := &a.report.Compute, 0, 0.0
	for i := range s.threads {
		a.nameThread(&s.threads[i])
		if t := &s.threads[i]; a.addCompute(t) {
			computed++
			longest = max(longest, t.Lived.v/1e9)
		}
	}
	if computed > 0 {
		use.Intervals++
		use.Seconds += longest
		use.addQuota(s.quota, float64(computed))
	}
	for _, p := range s.processes {
		if of := a.faults.sums[strconv.FormatInt(int64(p.PID.v), 10)]; of != nil && p.PID.known {
			of.name = string(p.Comm)
		}
	}
}

// addCompute adds an interval of a thread that computed graphs in it, and reports whether it did.
func (a *state) addCompute(t *threadLine) bool {
	if t.Role != word(resource.RoleCompute) || !t.Lived.known || !t.Runnable.known {
		return false
	}
	use := &a.report.Compute
	use.LivedNS += max(0, t.Lived.v)
	use.RunnableNS += max(0, min(t.Runnable.v, t.Lived.v))
	if a.compute == nil {
		a.compute = map[float64]bool{}
	}
	if len(a.compute) < maxIDs {
		a.compute[t.TID.v] = true
	}
	use.Threads = len(a.compute)
	return true
}

// addQuota adds what a quota did in an interval in which some threads computed. While a run queue is stopped, all
// of its threads wait: at least as many as there are threads for each CPU. The queues of other processes in the group
// are stopped as well, so that it explains no more than what these threads waited, in all intervals together: a stop
// counts when it ends.
func (u *ComputeUse) addQuota(line *quotaLine, threads float64) {
	if line == nil {
		return
	}
	if u.Quota == nil {
		u.Quota = &QuotaUse{}
	}
	if line.QuotaCPUs.v <= 0 {
		return
	}
	u.Quota.Group, u.Quota.CPUs = string(line.Group), line.QuotaCPUs.v
	u.Quota.Periods += int64(line.Periods.v)
	u.Quota.Throttled += int64(line.Throttled.v)
	each := 1.0
	if line.CPUs.v > 0 {
		each = max(1, threads/line.CPUs.v)
	}
	u.Quota.stoppedNS += max(0, line.ThrottledNS.v*each)
	u.Quota.ThrottledNS = min(u.Quota.stoppedNS, u.RunnableNS)
}

// nameThread adds a thread's name, process and reasons to what was counted of it.
func (a *state) nameThread(t *threadLine) {
	if !t.TID.known {
		return
	}
	id := strconv.FormatInt(int64(t.TID.v), 10)
	a.split = a.split || t.Disk.known
	a.reasons.add(t)
	if of := a.offCPU.sums[id]; of != nil {
		of.name, of.tgid = string(t.Comm), int64(t.TGID.v)
		if role := string(t.Role); of.role == "" || of.role == string(resource.RoleParked) ||
			role == string(resource.RoleCompute) {
			of.role = role
		}
		of.by.add(t)
	}
	if of := a.faults.sums[id]; of != nil && t.TID == t.TGID && of.name == "" {
		of.name = string(t.Comm)
	}
}

// windows puts snapshots that follow each other together. Its snapshots are of one kind.
type windows[S any] struct {
	width float64
	out   func(*S)
	open  *S
	at    float64
	merge func(*S)
}

// addSnapshot adds a snapshot; merge combines it with the one before.
func (w *windows[S]) addSnapshot(s *S, time float64, merge func(*S)) {
	at := math.Floor(time / w.width)
	if w.open != nil && at == w.at {
		w.merge(s)
		return
	}
	w.flush()
	if w.width <= 0 {
		w.out(s)
		return
	}
	w.open, w.at, w.merge = s, at, merge
}

// flush hands on the window that is open.
func (w *windows[S]) flush() {
	if w.open != nil {
		w.out(w.open)
	}
	w.open = nil
}

// finish fills in the report.
func (a *state) finish() {
	r, d := a.report, a.devices
	r.DeviceCount = len(d.byID) + len(d.beyond)
	r.Devices = d.sorted()
	for _, device := range append(slices.Clone(r.Devices), &d.all) {
		device.finish(a.Percentiles, d.seconds)
	}
	if a.Top > 0 && len(r.Devices) > a.Top {
		r.Devices = r.Devices[:a.Top]
	}
	if r.Block != nil {
		r.All = &d.all
		r.Block.SpacingS = r.Block.spacing()
		r.Operations, r.Processes, r.Cgroups = a.ops.byDevice(a.Percentiles), a.ops.processes.finish(a.Percentiles),
			a.ops.cgroups.finish(a.Percentiles)
		b := a.bounds
		r.Bounds = &Bounds{b.right, b.strap, b.odd, b.slotless, b.slotless > 0 && a.Strap, b.unusable, b.totals}
	}
	if r.System != nil {
		slices.SortStableFunc(a.metrics, func(a, b metricSample) int { return cmp.Compare(a.time, b.time) })
		r.System.SpacingS = r.System.spacing()
		r.OffCPU, r.Faults = a.top(&a.offCPU), a.top(&a.faults)
		r.OffCPU.Entries, r.OffCPU.Beyond, r.OffCPU.Longest = a.entries.n, a.entries.beyond, a.entries.longest
	}
	if r.Block != nil && r.System != nil {
		r.Importance = a.importance()
	}
	r.note(len(d.beyond))
}

// top lists the ids of which most was counted. Threads that were parked throughout are in the total alone.
func (a *state) top(t *ids) *TopIDs {
	top := &TopIDs{IDs: len(t.sums), Top: []IDRow{}, Forgotten: t.forgotten, MostForgotten: t.most}
	order := t.order()
	for _, id := range order {
		top.Total += t.sums[id].v
	}
	order = slices.DeleteFunc(order, func(id string) bool { return t.sums[id].role == string(resource.RoleParked) })
	for _, id := range order[:min(len(order), topIDs)] {
		of := t.sums[id]
		row := IDRow{ID: id, Name: of.name, TGID: of.tgid, Value: of.v, Share: of.v / top.Total}
		if a.split && t == &a.offCPU {
			row.By, row.Role = &of.by, of.role
		}
		top.Top = append(top.Top, row)
	}
	if a.split && t == &a.offCPU {
		top.By = &a.reasons
	}
	return top
}

// importance holds the latency against the metrics.
func (a *state) importance() *Importance {
	all := &a.devices.all
	step := max(a.report.Block.SpacingS, a.report.System.SpacingS, a.Window)
	im := &Importance{Percent: a.devices.percent, StepS: step, Lags: a.Lag, Rows: []ImportanceRow{},
		LeftOut: a.devices.left + a.left}
	targets := append([]*Device{all}, a.report.Devices...)
	if len(a.devices.byID) == 1 { // then it is all there is
		targets = targets[1:]
	}
	for _, d := range targets {
		rows := importance(d.samples, a.metrics, a.Lag, step)
		slices.SortStableFunc(rows, func(x, y Correlation) int { return cmp.Compare(strength(&y), strength(&x)) })
		for _, c := range rows {
			im.Rows = append(im.Rows, ImportanceRow{d.ID, d.Name, c})
		}
	}
	var p []float64
	for i := range im.Rows {
		if im.Rows[i].P != nil {
			p = append(p, *im.Rows[i].P)
		}
	}
	q := adjust(p)
	for i := range im.Rows {
		if im.Rows[i].P != nil {
			im.Rows[i].Q, q = &q[0], q[1:]
		}
	}
	im.Trend = trend(align(nil, all.samples, a.metrics, 0))
	return im
}

// strength orders correlations: those that there are by |r|, the others behind them.
func strength(c *Correlation) float64 {
	if c.R == nil {
		return -1
	}
	return math.Abs(*c.R)
}

// trend makes at most maxPoints moments of pairs, each the mean of its own.
func trend(pairs []pair) []Trend {
	n := min(len(pairs), maxPoints)
	moments := make([]Trend, n)
	for i := range moments {
		some := pairs[i*len(pairs)/n : (i+1)*len(pairs)/n]
		var known [metrics]float64
		for _, p := range some {
			moments[i].Time += p.latency.time / float64(len(some))
			moments[i].LatencyUS += float64(slotHigh(int(p.latency.slot))) / float64(len(some))
			for m, v := range p.metric.metric {
				if !math.IsNaN(v) {
					known[m]++
					moments[i].Metric[m] += v
				}
			}
		}
		for m := range known {
			moments[i].Metric[m] /= known[m] // 0/0 is NaN: not known
		}
	}
	return moments
}
