package analyze

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// small is a run of 30 s: a weight of 4000 bytes that is read each second, a cache of two cells, one of which is
// evicted after 10 s, and two activations that lie above each other.
func small() *memrun.Run {
	return &memrun.Run{
		Model: "m",
		Regions: []memrun.Region{
			{ID: 0, Type: "weight", Name: "w", Layer: 0, Buffer: 1, Bytes: 4000, FirstRead: start,
				LastRead: start + 30*second, Reads: 31, Read: 31 * 4000, Alloc: start - 2*second},
			{ID: 1, Type: "kv_cache", Name: "cache_k_l0", KV: "k", Layer: 0, Buffer: 2, Bytes: 200, FirstWrite: start,
				LastWrite: start + second, FirstRead: start, LastRead: start + 30*second, Writes: 2, Reads: 31,
				Written: 200, Read: 3100},
			{ID: 2, Type: "activation", Name: "h", Layer: -1, Buffer: 3, Offset: 0, Bytes: 600, FirstWrite: start,
				LastWrite: start + 30*second, FirstRead: start, LastRead: start + 30*second, Writes: 31, Reads: 31,
				Written: 31 * 600, Read: 31 * 600},
			{ID: 3, Type: "activation", Name: "a", Layer: -1, Buffer: 3, Offset: 400, Bytes: 600, FirstWrite: start,
				LastWrite: start + 30*second, FirstRead: start, LastRead: start + 30*second, Writes: 31, Reads: 31,
				Written: 31 * 600, Read: 31 * 600},
			{ID: 4, Type: "weight", Name: "never read", Layer: 0, Buffer: 1, Offset: 4000, Bytes: 96},
		},
		Lives: []memrun.Life{
			{Block: 0, KV: "k", CellBytes: 100, Cells: 1, Alloc: start, Write: start, Read: start + 10*second,
				Evict: start + 12*second, Reason: "seq_rm", Writes: 1, Reads: 11},
			{Block: 1, KV: "k", CellBytes: 100, Cells: 1, Alloc: start + second, Write: start + second,
				Read: start + 30*second, Writes: 1, Reads: 30},
		},
	}
}

// TestSurvey: what maps and lives contain of that run, by hand. They count set-up, so its tokens count too.
func TestSurvey(t *testing.T) {
	dir := small().Write(t, t.TempDir())
	s, err := readSurvey(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.seconds() != 30 || s.Tokens != 4+6+2 || s.ModelID != "m" {
		t.Errorf("%v s, %d tokens of %s", s.seconds(), s.Tokens, s.ModelID)
	}
	by := map[string]subject{}
	for _, subject := range s.subjects() {
		by[subject.Name] = subject
	}
	w, k, h := by["w"], by["cache_k_l0"], by["h"]
	if w.Lives == nil || w.Lives.Count != 4000 || w.Lives.Censored != 4000 || w.Lives.Max != 30*second ||
		w.Written != 4000 || w.BytesWritten != 0 {
		t.Errorf("weight: %+v", w)
	}
	if k.Lives == nil || k.Lives.Count != 200 || k.Lives.Censored != 100 || k.Lives.Min != 10*second ||
		k.Lives.Max != 29*second || k.WrittenOnce != 200 {
		t.Errorf("cache: %+v", k)
	}
	if h.Lives != nil || h.Bytes != 500 { // half of the 1000 bytes that both cover
		t.Errorf("activation: %+v", h)
	}
	if _, ok := by["never read"]; ok || len(by) != 4 {
		t.Errorf("%d subjects", len(by))
	}
	kv := s.KV
	if len(kv.Lives) != 2 || kv.Blocks != 2 || kv.Cells != 1 || kv.Lives[0].To != 12 || kv.Lives[0].LastRead != 10 ||
		kv.Lives[0].Reason != "seq_rm" || kv.Lives[1].From != 1 || kv.Lives[1].To != 30 {
		t.Errorf("%+v", kv)
	}
	var text strings.Builder
	write, err := s.measure(context.Background(), memory.Options{})
	if err == nil {
		err = write(&text)
	}
	if err != nil || !strings.Contains(text.String(),
		"weight,1,4000,1,30,30,30,30,1.0333333333333334,31,0,,,,,high_mrm,1,,,,,,\n") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

// TestNotWhole: a run that gave the oldest accesses back is refused, for what it did in a day is not known; accesses of
// one whose recording stopped early are not divided by the tokens of the whole run.
func TestNotWhole(t *testing.T) {
	rotated := &rundir.Rotated{}
	rotated.AddPart(rundir.TraceName, 40)
	tokens := &rundir.Tokens{Prompt: 3, Generated: 4}
	for name, c := range map[string]struct {
		m      rundir.Metadata
		tokens int64
		err    string
	}{
		"whole":   {rundir.Metadata{Tokens: tokens}, 7, ""},
		"stopped": {rundir.Metadata{Tokens: tokens, Stopped: &rundir.Stopped{Cause: "max_disk"}}, 0, ""},
		"rotated": {rundir.Metadata{Tokens: tokens, Rotated: rotated}, 0,
			"the oldest 40 rows of accesses were given back"},
	} {
		run := small()
		c.m.Version, c.m.RunID = rundir.MetadataVersion, "run_1"
		run.Metadata = memory.Metadata{SchemaVersion: table.Version, Metadata: c.m}
		s, err := readSurvey(context.Background(), run.Write(t, t.TempDir()))
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
		case err != nil || s.Tokens != c.tokens:
			t.Errorf("%s: %v, %+v, want %d tokens", name, err, s, c.tokens)
		}
	}
}

// TestRefusals: what cannot be read is reported with the file's name, in one line.
func TestSurveyRefusals(t *testing.T) {
	foreign := small()
	foreign.Version = "3.0"
	bare := &memrun.Run{Model: "m", Files: map[string]string{"resource.jsonl": "{}\n"}}
	broken := small().Write(t, t.TempDir())
	if err := os.Truncate(filepath.Join(broken, rundir.RegionsName), 100); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		want []string
		is   error
	}{
		"another major version": {foreign.Write(t, t.TempDir()),
			[]string{rundir.RegionsName, `"3.0"`, "llamatap that wrote it"}, table.ErrVersion},
		"no tables": {bare.Write(t, t.TempDir()), []string{"--tap-regions"}, errNoRegions},
		"truncated": {broken, []string{rundir.RegionsName, "llamatap verify"}, nil},
	} {
		_, err := readSurvey(context.Background(), c.dir)
		if err == nil || strings.Contains(err.Error(), "\n") || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", name, err, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := readSurvey(ctx, small().Write(t, t.TempDir())); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// traced is the small run with the trace of the accesses to its regions.
func traced(parts int) *memrun.Run {
	r := small()
	r.Parts = parts
	for i := range int64(31) {
		at := start + i*second
		r.Trace = append(r.Trace,
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "weight", Collector: "graph", Region: 0,
				Size: 4000, Buffer: 1, Graph: i, Token: i},
			memrun.Access{NS: at, Phase: "generation", Op: "write", Type: "activation", Collector: "graph", Region: 2,
				Size: 600, Buffer: 3, Graph: i, Token: i},
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "kv_cache", Collector: "graph", Region: 1,
				Size: 20, Buffer: 2, Pieces: 2, Stride: 100, Graph: i, Token: i},
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "kv_cache", Collector: "graph", Region: 1,
				Offset: 100, Size: 100, Buffer: 2, Graph: i, Token: i, Flags: memtrace.TracePadded},
			memrun.Access{NS: at, Phase: "generation", Op: "write", Type: "weight", Collector: "fault", Region: 0,
				Size: 4096, Buffer: 1, Graph: i, Token: i},
		)
	}
	return r
}

// TestTrace: heat maps keep every byte, working sets are the different bytes of a window, and phases what was read
// and written in them.
func TestTrace(t *testing.T) {
	for _, parts := range []int{1, 3} {
		s, _ := measured(t, traced(parts).Write(t, t.TempDir()))
		if s.From != "trace" {
			t.Fatal(s.From)
		}
		sums := map[string]float64{}
		for _, p := range s.Heat.Panels {
			if len(p.Touched) != p.Rows*s.Heat.Bins || s.Heat.Bins > mostBins {
				t.Fatalf("%d cells in %d rows and %d bins", len(p.Touched), p.Rows, s.Heat.Bins)
			}
			for _, v := range p.Touched {
				sums[p.Type] += v
			}
		}
		for kind, want := range map[string]float64{"weight": 31 * 4000, "activation": 31 * 600, "kv_cache": 31 * 20} {
			if math.Abs(sums[kind]-want) > 1e-6*want {
				t.Errorf("%s: %v bytes are drawn, want %v", kind, sums[kind], want)
			}
		}
		for _, w := range s.Working.Types {
			most := 0.0
			for _, v := range w.Bytes {
				most = max(most, v)
			}
			// Grains are of 64 bytes: 4000 are 63 of them, but the weight's axis ends there; 600 are 10; two pieces
			// of a cache's 200 are 2.
			if want := map[string]float64{"weight": 4000, "activation": 640, "kv_cache": 128}[w.Type]; most != want {
				t.Errorf("%s: working set %v, want %v", w.Type, most, want)
			}
		}
		if len(s.Phases) != 3 || s.Phases[0].Type != "weight" || s.Phases[0].Read != 31*4000 ||
			s.Phases[0].Written != 0 || s.Phases[0].Phase != "generation" {
			t.Errorf("%+v", s.Phases)
		}
	}
}

// TestClockBins: whatever comes in which order, nothing is lost, and there are never too many bins.
func TestClockBins(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		c := &clockBins{width: 1 << r.IntN(20)}
		a, b := c.panel(3), (*binRows)(nil)
		base, want := r.Int64N(1<<60), [2]float64{}
		for i := range 500 {
			if i == 100 {
				b = c.panel(2)
			}
			ns := base + r.Int64N(1+int64(1)<<r.IntN(50))
			n := c.hold(ns)
			if c.bins() > mostBins || ns/c.width != n || n < c.first || n > c.last {
				t.Fatalf("seed %d: %d bins from %d to %d, %d", seed, c.bins(), c.first, c.last, n)
			}
			a.at(n)[r.IntN(3)]++
			want[0]++
			if b != nil {
				b.at(n)[r.IntN(2)]++
				want[1]++
			}
		}
		for i, p := range []*binRows{a, b} {
			sum := 0.0
			for _, bin := range p.bins {
				for _, v := range bin {
					sum += v
				}
			}
			if sum != want[i] || len(p.bins) != c.bins() {
				t.Fatalf("seed %d: %v of %v in %d bins", seed, sum, want[i], len(p.bins))
			}
		}
	}
}

// TestSpace compares the axis with one that is made byte by byte.
func TestSpace(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		var all []extent
		for range r.IntN(12) {
			at := r.Uint64N(60)
			all = append(all, extent{1 + r.Int64N(2), at, at + r.Uint64N(20)})
		}
		s, next := newSpace(all), uint64(0)
		for buffer := int64(1); buffer <= 2; buffer++ {
			for offset := range uint64(90) {
				covered := false
				for _, e := range all {
					covered = covered || e.buffer == buffer && e.start <= offset && offset < e.end
				}
				axis, left, ok := s.at(buffer, offset)
				if ok != covered || ok && (axis != next || left == 0) {
					t.Fatalf("seed %d: byte %d of buffer %d: %d, %v, want %d, %v", seed, offset, buffer, axis, ok,
						next, covered)
				}
				if covered {
					next++
				}
			}
		}
		if s.bytes != next {
			t.Fatalf("seed %d: %d bytes, want %d", seed, s.bytes, next)
		}
	}
}

// TestMark compares grains with a set.
func TestMark(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 6))
		p := newPlaced("weight", newSpace([]extent{{1, 0, 1 << 16}}), second)
		set := map[uint64]bool{}
		for range r.IntN(30) {
			at := r.Uint64N(1 << 16)
			span := min(r.Uint64N(5000), 1<<16-at)
			p.mark(at, span)
			for b := at; b < at+span; b++ {
				set[b>>p.shift] = true
			}
		}
		if p.grains != int64(len(set)) {
			t.Fatalf("seed %d: %d grains, want %d", seed, p.grains, len(set))
		}
	}
}

// TestKnownAnswer: weights whose load ended 30 s before they were read last are needed for 30.0 s exactly, by the
// trace as by the map; and the trace says how long activations are needed.
func TestKnownAnswer(t *testing.T) {
	run := small()
	run.Regions[0].Alloc = start
	run.Trace = append(run.Trace, memrun.Access{NS: start, Phase: "weight_load", Op: "write", Type: "weight",
		Collector: "graph", Region: 0, Size: 4000, Buffer: 1})
	for i := range int64(31) {
		at := start + i*second
		run.Trace = append(run.Trace,
			memrun.Access{NS: at, Phase: "generation", Op: "read", Type: "weight", Collector: "graph", Region: 0,
				Size: 4000, Buffer: 1, Graph: i, Token: i},
			memrun.Access{NS: at, Phase: "generation", Op: "write", Type: "activation", Collector: "graph", Region: 2,
				Size: 400, Buffer: 3, Graph: i, Token: i},
			memrun.Access{NS: at + second/10, Phase: "generation", Op: "read", Type: "activation", Collector: "graph",
				Region: 2, Size: 400, Buffer: 3, Graph: i, Token: i})
	}
	s, err := readSurvey(context.Background(), run.Write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	write, err := s.measure(context.Background(), memory.Options{})
	if err == nil {
		err = write(&text)
	}
	if err != nil || s.From != "trace" || !strings.HasPrefix(text.String(),
		strings.Join(memory.MetricsColumns, ",")+"\n") ||
		!strings.Contains(text.String(), "weight,1,4096,1,30,30,30,30,") {
		t.Errorf("%v, from %s:\n%s", err, s.From, text.String())
	}
	for _, subject := range s.subjects() {
		switch subject.Name {
		case "w":
			label, _ := subject.metrics().LabelCensored(memtrace.Thresholds{})
			if v, _ := subject.Lives.Quantile(0.99); v != 30*second || label != memtrace.HighMRM ||
				subject.BytesWritten != 0 || subject.BytesRead != 31*4000 {
				t.Errorf("weight: p99 of %d ns, %s, %+v", v, label, subject)
			}
		case "h":
			if v, _ := subject.Lives.Quantile(0.99); v != second/10 || subject.Lives.Count != 31*400 ||
				subject.WrittenOnce != 0 {
				t.Errorf("activation: p99 of %d ns, %+v", v, subject.Lives.Distribution.Tally)
			}
		}
	}
}

// TestSamples: a trace of samples alone is drawn, and said to be one; lives are those of the maps.
func TestSamples(t *testing.T) {
	run := small()
	for i := range int64(31) {
		run.Trace = append(run.Trace, memrun.Access{NS: start + i*second, Phase: "generation", Op: "read",
			Type: "weight", Collector: "perf", Region: 0, Addr: 1<<20 + i, Size: 8})
	}
	run.Regions[0].Start = 1 << 20
	s, err := readSurvey(context.Background(), run.Write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	write, err := s.measure(context.Background(), memory.Options{})
	if err == nil {
		err = write(&text)
	}
	if err != nil || s.From != "regions" || !strings.Contains(strings.Join(s.Notes, "; "),
		"what is not drawn was not sampled") || s.Heat == nil ||
		!strings.Contains(text.String(), "weight,1,4000,1,30,") {
		t.Errorf("%v, from %s, %q:\n%s", err, s.From, s.Notes, text.String())
	}
	for _, subject := range s.subjects() {
		if subject.Name == "w" && (subject.Lives == nil || subject.Lives.Max != 30*second) {
			t.Errorf("%+v", subject)
		}
	}
}

// TestTraceIsStreamed: what is kept of a trace does not grow with its rows.
func TestTraceIsStreamed(t *testing.T) {
	mallocs := func(rows int64) uint64 {
		s := read(t, long(rows).Write(t, t.TempDir()))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		scanned(t, s)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	small, large := mallocs(20_000), mallocs(60_000)
	if large > small+4_000 {
		t.Errorf("%d objects for 20000 rows, %d for 60000", small, large)
	}
}

// long is a run with so many rows in its trace.
func long(rows int64) *memrun.Run {
	r := small()
	for i := range rows {
		r.Trace = append(r.Trace, memrun.Access{NS: start + i*30*second/rows, Phase: "generation",
			Op: []string{"read", "write"}[i%2], Type: []string{"weight", "activation"}[i%2], Collector: "graph",
			Region: i % 2 * 2, Size: 400, Buffer: 1 + i%2*2, Offset: i * 37 % 600, Pieces: 1 + i%3, Stride: 200,
			Graph: i / 100, Token: i / 100})
	}
	return r
}

// BenchmarkTrace reads the rows of a trace for its figures alone.
func BenchmarkTrace(b *testing.B) {
	const rows = 200_000
	dir := long(rows).Write(b, b.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		scanned(b, read(b, dir))
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// TestTitle: pictures name a run by what ran, not by its number.
func TestTitle(t *testing.T) {
	for want, m := range map[string]rundir.Metadata{
		"run_1": {RunID: "run_1"},
		"m":     {RunID: "run_1", Model: rundir.Model{ID: "m"}},
		"Some model, Q8_0": {RunID: "run_1",
			Model: rundir.Model{ID: "m", Name: "Some model", FileType: "Q8_0"}},
		"model-Q4_K, context 4096": {Model: rundir.Model{ID: "m", Name: "model-Q4_K", FileType: "Q4_K"},
			Contexts: []rundir.Context{{}, {NCtx: 4096}}},
		"model, F16, context 262144": {Model: rundir.Model{Name: "model", FileType: "F16"},
			Contexts: []rundir.Context{{NCtx: 262144}}},
	} {
		if got := titleOf(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := noteOf(&memory.Cell{Prompt: "p0", KVType: "f16"}, "model",
		"run_1"); got != "prompt p0, KV cache f16, run_1" {
		t.Errorf("%q", got)
	}
	if got := noteOf(&memory.Cell{}, "run_1", "run_1"); got != "" {
		t.Errorf("%q: the title says it", got)
	}
}

// TestNotRegular demands that tables which are links are refused: a run that came from elsewhere may lead anywhere,
// or to a FIFO that nobody writes to.
func TestNotRegular(t *testing.T) {
	for _, name := range []string{"region_map.parquet", "kv_block_lifecycle.parquet"} {
		dir := small().Write(t, t.TempDir())
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path)); err != nil {
			t.Fatal(err)
		}
		if _, err := readSurvey(context.Background(), dir); !errors.Is(err, rundir.ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
