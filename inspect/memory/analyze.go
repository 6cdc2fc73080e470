package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// ErrNoTrace occurs when a run has no table of accesses that can be read.
var ErrNoTrace = errors.New("no accesses to memory")

// ErrNoTable is the ErrNoTrace of a run that has no such table at all.
var ErrNoTable = fmt.Errorf("%w", ErrNoTrace)

// Options say how a run is analysed. The zero value works.
type Options struct {
	// Windows are lengths of working sets' windows; none: 1 ms, 100 ms and 1 s.
	Windows []time.Duration
	// Thresholds are those of labels; the zero value has mrm-trace's.
	Thresholds memtrace.Thresholds
	// Rows is given all rows of the table in order, some at a time, for what else is made of them while they are
	// read; nil: nothing is. It is called on the goroutine of Analyze, which ends with its error.
	Rows func(*Rows) error
	// Progress, if any, is called with the rows of the table that were read, of all.
	Progress func(done, total int64)
	// Uses adds the functions, variables and processes of samples.
	Uses bool
}

// Rows are some rows of a table of accesses. They are good until the call that was given them returns.
type Rows struct {
	N int
	// by number of the column, such as memtrace.TraceTime; nil: the table does not have it, or metrics do not need it
	Columns []*table.Vector
}

// defaultWindows are the windows that working sets are measured in.
func defaultWindows() []time.Duration {
	return []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second}
}

// analysis is a report on its way.
type analysis struct {
	report   *Report
	regions  *regionTable
	lives    *lives
	meter    *memtrace.Meter
	traffic  memtrace.Traffic
	samples  sampleSums
	counts   [8]int64
	extras   [16]extra // by type of region
	sources  []int64   // rows by time source's code
	names    []string  // of time sources, by code
	window   int64     // the longest that rows are sums over; 0: none is
	last     int64     // time of the newest row of the ledger
	late     int64
	metering *metering
}

// extra is what touches do not say of a type.
type extra struct {
	fusible, padded uint64
	unsized         int64
}

// Analyze reads the tables of a run directory. A run without a table of accesses is ErrNoTrace.
func Analyze(ctx context.Context, dir string, o Options) (*Report, error) {
	r, err := compute(ctx, dir, o)
	if errors.Is(err, table.ErrTable) && !errors.Is(err, table.ErrVersion) {
		return nil, fmt.Errorf("%w; 'llamatap verify %s' says which files are not what was recorded", err, dir)
	}
	return r, err
}

func compute(ctx context.Context, dir string, o Options) (*Report, error) {
	t, err := openTrace(dir)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	a, err := begin(ctx, dir, t, o)
	if err != nil {
		return nil, err
	}
	a.metering = meter(a.meter, a.lives)
	columns := others
	if o.Uses {
		for _, column := range []int{memtrace.TraceSymbol, memtrace.TraceDataSymbol, memtrace.TracePID} {
			a.samples.groupings = append(a.samples.groupings, &grouping{column: column, uses: map[useKey]*use{},
				pages: map[seenPage]struct{}{}})
		}
		columns = append(slices.Clone(others), memtrace.TraceSymbol, memtrace.TraceDataSymbol, memtrace.TracePID,
			memtrace.TraceTID, memtrace.TraceCPU, memtrace.TraceCacheLevel)
	}
	done := int64(0)
	err = eachRows(ctx, t, columns, func(r *rows) error {
		a.samples.phases.fill(r)
		if o.Rows != nil {
			if err := o.Rows(&Rows{N: r.n, Columns: r.columns[:]}); err != nil {
				return err
			}
		}
		if done += int64(r.n); o.Progress != nil {
			o.Progress(done, a.report.Rows)
		}
		return a.rows(r)
	})
	a.metering.end()
	if err != nil {
		return nil, a.withRun(err)
	}
	if err := a.finish(ctx, t); err != nil {
		return nil, a.withRun(err)
	}
	return a.report, nil
}

// withRun adds the run to an error.
func (a *analysis) withRun(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", a.report.Path, ErrNoTrace, err)
}

// openTrace opens a run's table of accesses.
func openTrace(dir string) (*table.Table, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%s: there is no such folder: give a run directory", dir)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: this is a file: give the run directory that holds %s", dir, rundir.TraceName)
	}
	t, err := table.Open(dir, rundir.TraceName)
	if errors.Is(err, fs.ErrNotExist) {
		if err := rundir.OfSegment(dir); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoTable, err)
		}
		return nil,
			fmt.Errorf(
				"%s: %w: record with --tap-ledger rows or --tap-samples; the newest accesses of a live run are in no "+
					"file yet, and those of one that was killed are lost", dir, ErrNoTable)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrNoTrace, err)
	}
	return t, nil
}

// begin makes ready what rows are added to.
func begin(ctx context.Context, dir string, t *table.Table, o Options) (*analysis, error) {
	if len(o.Windows) == 0 {
		o.Windows = defaultWindows()
	}
	if o.Thresholds == (memtrace.Thresholds{}) {
		o.Thresholds = memtrace.DefaultThresholds()
	}
	r := &Report{Path: dir, Rows: t.Rows(), Parts: len(t.Files), Thresholds: o.Thresholds,
		Collectors: map[string]int64{}, TimeSources: map[string]int64{}}
	r.Version = t.Files[len(t.Files)-1].SchemaVersion()
	windows := slices.Clone(o.Windows)
	slices.Sort(windows)
	lengths := make([]int64, 0, len(windows))
	for _, w := range slices.Compact(windows) {
		if w <= 0 {
			return nil, fmt.Errorf("a window of %v: give lengths above 0, such as 1ms,100ms,1s", w)
		}
		lengths = append(lengths, int64(w))
		r.Windows = append(r.Windows, w.Seconds())
	}
	regions, lives := &regionTable{all: map[int]*regionRow{}},
		&lives{regions: map[cacheTensor]int{}, kinds: map[string]*blockSums{}}
	if foreign(t) {
		r.note("mrm-trace wrote this trace: its rows are samples without sizes")
	} else {
		var err error
		if regions, err = readRegions(ctx, dir); err != nil {
			return nil, err
		}
		if lives, err = readLives(ctx, dir, regions); err != nil {
			return nil, err
		}
	}
	if t.Cut {
		r.note("the table was not completed: the newest accesses are missing, for the recording was ended from " +
			"outside, or its disk was full")
	}
	if m, err := rundir.ReadMetadata(dir); err == nil {
		r.GivenBack = m.TraceGivenBack(dir)
		if text := m.Stopped.Missing(); text != "" {
			r.note(text)
		}
	}
	if len(t.Missing) > 0 {
		r.note("parts of the table are missing, and with them accesses between others: " +
			strings.Join(t.Missing, ", "))
	}
	phases, err := readPhases(dir)
	if err != nil {
		return nil, err
	}
	a := &analysis{report: r, regions: regions, lives: lives, meter: memtrace.NewMeter(lengths...),
		samples: sampleSums{isForeign: foreign(t), phases: phases}}
	for id, g := range regions.all {
		if g.kind != memtrace.Activation {
			a.meter.Declare(id, g.kind, g.place())
		}
	}
	return a, nil
}

// rows takes rows of the table in. Those of one collector mostly stand together.
func (a *analysis) rows(r *rows) error {
	eachCodeRun(r.columns[memtrace.TraceCollector].Codes, func(code int32, from, end int) {
		collector := r.from.known[code+1]
		a.counts[collector] += int64(end - from)
		if collector == memtrace.CollectorGraph {
			a.ledger(r, from, end)
			return
		}
		for row := from; row < end; row++ {
			a.samples.add(r, row, collector)
		}
	})
	if v := r.columns[memtrace.TraceTimeSource]; v != nil {
		a.timed(v)
	}
	return nil
}

// eachCodeRun calls f for every stretch of rows of one code.
func eachCodeRun(codes []int32, f func(code int32, from, end int)) {
	for from := 0; from < len(codes); {
		end := from + 1
		for end < len(codes) && codes[end] == codes[from] {
			end++
		}
		f(codes[from], from, end)
		from = end
	}
}

// timed counts the sources of times.
func (a *analysis) timed(v *table.Vector) {
	eachCodeRun(v.Codes, func(code int32, from, end int) {
		if code < 0 {
			return
		}
		for int(code) >= len(a.sources) {
			a.sources, a.names = append(a.sources, 0), append(a.names, strings.Clone(v.Words[len(a.names)]))
		}
		a.sources[code] += int64(end - from)
	})
}

// ledger takes rows of the ledger in.
func (a *analysis) ledger(r *rows, from, end int) {
	for from < end {
		room := a.metering.freeTouches()
		room = room[:min(len(room), end-from)]
		r.touches(from, room)
		a.metering.batch = a.metering.batch[:len(a.metering.batch)+a.sums(r, from, room)]
		from += len(room)
	}
}

// sums adds up what accesses come to. It moves those to the front that are to be followed, and says how many.
func (a *analysis) sums(r *rows, from int, touches []memtrace.Touch) (kept int) {
	const flagged = memtrace.TracePadded | memtrace.TraceUnknown | memtrace.TraceFusible
	flags := r.ints[memtrace.TraceFlags][from:]
	graphs, tokens := r.columns[memtrace.TraceGraphSeq], r.columns[memtrace.TraceToken]
	for i := range touches {
		t := &touches[i]
		is := memtrace.TraceFlag(flags[i])
		if is&flagged != 0 && t.Op != memtrace.OpAlloc && t.Op != memtrace.OpFree && !a.extra(t, is) {
			continue
		}
		if kept != i {
			touches[kept] = *t
			t = &touches[kept]
		}
		kept++
		if t.NS < a.last && is&memtrace.TraceLoaded == 0 && t.WindowNS == 0 {
			a.late++
		}
		a.last = max(a.last, t.NS)
		a.window = max(a.window, t.WindowNS)
		a.traffic.Add(t, number(graphs, from+i, -1), number(tokens, from+i, -1))
		a.meter.Count(t)
	}
	return kept
}

// extra adds up what accesses with certain flags come to. It is false for what a kernel may pass over.
func (a *analysis) extra(t *memtrace.Touch, flags memtrace.TraceFlag) bool {
	e := &a.extras[t.Type]
	switch {
	case flags&memtrace.TracePadded != 0:
		e.padded += t.Size
		return false
	case flags&memtrace.TraceUnknown != 0:
		e.unsized++
	case flags&memtrace.TraceFusible != 0:
		e.fusible += t.Size
	}
	return true
}

// finish ends the analysis.
func (a *analysis) finish(ctx context.Context, t *table.Table) error {
	a.lives.until(a.last, a.meter)
	a.meter.Finish(a.last)
	a.traffic.Finish()
	for c, n := range a.counts {
		if n > 0 {
			a.report.Collectors[memtrace.Collector(c).String()] = n
		}
	}
	for code, n := range a.sources {
		a.report.TimeSources[a.names[code]] = n
	}
	a.fill()
	hasLedger := a.counts[memtrace.CollectorGraph] > 0
	a.samples.fillTypes(a.report, a.regions, hasLedger)
	a.samples.fillUses(a.report)
	a.samples.fillPhases(a.report)
	a.report.KVBlocks = a.lives.blocks()
	if a.lives.unplaced > 0 {
		a.report.note(count(a.lives.unplaced, "end of a life of cache cells", "ends of lives of cache cells") +
			" could not be placed in a region: their last retention counts as censored")
	}
	return a.compareWithLedger(ctx, t)
}

// count writes a number with its noun, where the plural takes more than an s, or a verb.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
