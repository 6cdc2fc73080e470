package memory

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

const (
	read, write = memtrace.OpRead, memtrace.OpWrite
	weight, kv  = memtrace.Weight, memtrace.KVCache
	activation  = memtrace.Activation
)

var update = flag.Bool("update", false, "write the golden files anew")

// decode is 31 steps, one a second: two weights that were loaded at the beginning, a cell of 64 bytes written to
// each of two caches, keys in one piece and values in columns, all cells read, and an activation that is written
// and read.
func decode() []row {
	var rows []row
	load := func(region, offset, size int) {
		rows = append(rows, access(0, write, weight, region, 1, offset, size).with(memtrace.TracePhase, "weight_load",
			memtrace.TraceFlags, int(memtrace.TraceLoaded), memtrace.TraceTimeSource, "range"))
	}
	load(1, 0, 1000)
	load(2, 1024, 3000)
	for step := range 31 {
		ns := int64(step) * second
		add := func(r row) {
			rows = append(rows, r.with(memtrace.TraceGraphSeq, step, memtrace.TraceToken, 100+step, memtrace.TraceOpSeq,
				len(rows)))
		}
		add(access(ns, read, weight, 1, 1, 0, 1000))
		add(access(ns, write, activation, 5, 3, 0, 256))
		add(access(ns, write, kv, 3, 2, 64*step, 64))
		add(access(ns, write, kv, 4, 2, 4096+2*step, 64).with(memtrace.TracePieces, 32, memtrace.TraceStride, 128))
		add(access(ns, read, kv, 3, 2, 0, 64*(step+1)))
		add(access(ns, read, kv, 4, 2, 4096, 64*(step+1)).with(memtrace.TracePieces, 32, memtrace.TraceStride, 128))
		add(access(ns, read, kv, 3, 2, 64*(step+1), 64).with(memtrace.TraceFlags, int(memtrace.TracePadded)))
		add(access(ns, read, activation, 5, 3, 0, 256).with(memtrace.TraceFlags, int(memtrace.TraceFusible)))
		add(access(ns, read, weight, 2, 1, 1024, 3000))
	}
	return rows
}

var decodeRegions = []regionFixture{
	{id: 1, kind: "weight", name: "blk.0.attn_q.weight", buffer: 1, bytes: 1000},
	{id: 2, kind: "weight", name: "output.weight", buffer: 1, offset: 1024, bytes: 3000},
	{id: 3, kind: "kv_cache", name: "cache_k_l0", kv: "k", buffer: 2, bytes: 4096},
	{id: 4, kind: "kv_cache", name: "cache_v_l0", kv: "v", buffer: 2, offset: 4096, bytes: 4096},
	{id: 5, kind: "activation", name: "attn_norm-0", buffer: 3, bytes: 256},
	{id: 6, kind: "compute_buffer", name: "CPU buffer 3", buffer: 3, bytes: 65536},
}

func decodeRun(t testing.TB) string {
	dir := run(t, decode(), 50)
	writeFile(t, dir, rundir.RegionsName, regionMap(t, decodeRegions))
	return dir
}

// TestKnownAnswers: weights that are read for 30 s are kept for 30 s exactly; cells of a cache are kept from their
// step to the last; both layouts of a cache are alike.
func TestKnownAnswers(t *testing.T) {
	r := analyze(t, decodeRun(t), Options{})
	w, c, a := r.Type("weight"), r.Type("kv_cache"), r.Type("activation")
	if w == nil || c == nil || a == nil || len(r.Types) != 3 || r.Rows != 2+31*9 || r.Seconds() != 30 {
		t.Fatalf("%d types, %d rows, %v s", len(r.Types), r.Rows, r.Seconds())
	}
	if q := w.Retention; q.P50 != 30 || q.P99 != 30 || q.Max != 30 || q.CensoredShare != 1 || q.KM99 != nil ||
		*w.WriteOnce != 1 || w.Label != "high_mrm" || w.LabelCensored != "high_mrm" {
		t.Errorf("weights: %+v, %+v", q, w.Figures)
	}
	if w.Reads != 62 || w.Writes != 2 || w.BytesRead != 31*4000 || w.BytesWritten != 4000 || w.Bytes != 4000 ||
		*w.ReadWrite != 31 || w.Regions != 2 {
		t.Errorf("weights: %+v", w)
	}
	if math.Abs(*w.ReadFrequency-31.0/30) > 1e-12 || *w.IAI.P50 != second || w.IAI.Max != second || w.IAI.Min != 0 {
		t.Errorf("weights: %v Hz, %+v", *w.ReadFrequency, w.IAI)
	}
	// 31 cells, kept for 30 s down to 0, of two regions.
	if q := c.Retention; q.Max != 30 || q.Mean != 15 || q.Bytes != 2*31*64 || *c.WriteOnce != 1 || c.Padded != 31*64 ||
		c.Hulls != 0 || c.BytesRead != 2*64*31*32/2 {
		t.Errorf("caches: %+v, %+v", q, c.Figures)
	}
	if a.Fusible != 31*256 || *a.WriteOnce != 0 || a.Label != "low_mrm" || a.Retention.Max != 0 || a.Bytes != 65536 {
		t.Errorf("activations: %+v", a.Figures)
	}
	if len(r.Regions) != 5 || r.Regions[0].Name != "output.weight" || r.Regions[0].PerStep.Mean != 3000 ||
		r.Regions[0].PerStep.Count != 31 {
		t.Errorf("%d regions, first %+v", len(r.Regions), r.Regions[0])
	}
	k, v := r.Regions[1], r.Regions[2]
	if k.KV+v.KV != "kv" && k.KV+v.KV != "vk" || *k.Retention != *v.Retention || *k.IAI != *v.IAI ||
		k.Reuse.Count != v.Reuse.Count {
		t.Errorf("keys %+v\nvalues %+v", k.Figures, v.Figures)
	}
	if s := r.Traffic.Steps; len(s) != 31 || s[30].Token != 130 || s[30].Read[weight] != 4000 ||
		s[30].Read[kv] != 2*64*31 || s[30].Written[kv] != 128 {
		t.Errorf("%d steps, last %+v", len(s), s[len(s)-1])
	}
	// One second windows: 4000 bytes of weights, 256 of activations, and the cells until then.
	if ws := w.WorkingSet; len(ws) != 3 || ws[2].WindowS != 1 || ws[2].MeanBytes != 4000 || ws[2].MaxBytes != 4000 ||
		c.WorkingSet[2].MaxBytes != 2*31*64 {
		t.Errorf("working sets %+v, %+v", w.WorkingSet, c.WorkingSet)
	}
}

// TestEvictions: cells that were evicted are not censored, in either layout; others are.
func TestEvictions(t *testing.T) {
	dir := decodeRun(t)
	writeFile(t, dir, "kv_block_lifecycle.parquet", lifeTable(t, []life{
		{0, "k", 0, 8, 64, 0, 20 * second, 20*second + 1, "seq_rm", 0},
		{0, "v", 0, 8, 64, 0, 20 * second, 20*second + 1, "seq_rm", 0},
		{0, "k", 8, 31, 64, 8 * second, 30 * second, -1, "", 0},
		{0, "v", 8, 31, 64, 8 * second, 30 * second, -1, "", 0},
		{7, "k", 0, 8, 64, 0, 5 * second, 6 * second, "clear", 0},
	}))
	r := analyze(t, dir, Options{})
	for i := range r.Regions {
		g := &r.Regions[i]
		if g.Type != "kv_cache" {
			continue
		}
		// 8 cells of 31 ended, at 20 s; and they were read again, which the trace of the test does though nobody would.
		if q := g.Retention; q.CensoredShare != 23.0/31 || q.Bytes != 31*64 || q.Max != 22 {
			t.Errorf("%s: %+v", g.Name, q)
		}
	}
	if len(r.KVBlocks) != 2 || r.KVBlocks[0].Tensor != "k" || r.KVBlocks[0].Lives != 3 || r.KVBlocks[0].Censored != 1 ||
		r.KVBlocks[0].Ended["seq_rm"] != 1 || r.KVBlocks[0].Retention.Max != 22 {
		t.Errorf("%+v", r.KVBlocks)
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "1 end of a life of cache cells could not be placed") {
		t.Errorf("%q", r.Notes)
	}
}

// TestEvictionsOfTwoContexts: where the map of memory says which context a cache belongs to, cells end in that of their
// context;
// where it does not, in none.
func TestEvictionsOfTwoContexts(t *testing.T) {
	rows := []row{access(0, write, kv, 1, 1, 0, 128), access(0, write, kv, 2, 2, 0, 128),
		access(5*second, read, kv, 1, 1, 0, 128), access(5*second, read, kv, 2, 2, 0, 128),
		access(9*second, read, weight, 3, 3, 0, 1)}
	for _, ctx := range []int{0, 1} {
		dir := run(t, rows, 10)
		writeFile(t, dir, rundir.RegionsName, regionMap(t, []regionFixture{
			{id: 1, kind: "kv_cache", name: "cache_k_l0", kv: "k", buffer: 1, bytes: 128, ctx: ctx},
			{id: 2, kind: "kv_cache", name: "cache_k_l0", kv: "k", buffer: 2, bytes: 128, ctx: 2 * ctx},
		}))
		writeFile(t, dir, "kv_block_lifecycle.parquet",
			lifeTable(t, []life{{0, "k", 0, 2, 64, 0, 5 * second, 6 * second, "clear", 1}}))
		r := analyze(t, dir, Options{})
		censored := map[int]float64{}
		for i := range r.Regions {
			if q := r.Regions[i].Retention; q != nil {
				censored[r.Regions[i].ID] = q.CensoredShare
			}
		}
		if isPlaced := !strings.Contains(strings.Join(r.Notes, "\n"), "could not be placed"); isPlaced != (ctx == 1) ||
			censored[1] != 1 || censored[2] != float64(1-ctx) {
			t.Errorf("context %d: censored %v, notes %q", ctx, censored, r.Notes)
		}
	}
}

// TestTeardown: what is freed because the run ends is censored, what is freed before is not.
func TestTeardown(t *testing.T) {
	for phase, censored := range map[string]float64{"generation": 0, "teardown": 1} {
		rows := []row{access(0, write, weight, 1, 1, 0, 10), access(5*second, read, weight, 1, 1, 0, 10),
			access(9*second, memtrace.OpFree, weight, 0, 1, 0, 4096).with(memtrace.TraceRegion, nil,
				memtrace.TracePhase, phase)}
		dir := run(t, rows, 10)
		writeFile(t, dir, rundir.RegionsName, regionMap(t, decodeRegions[:1]))
		w := analyze(t, dir, Options{}).Type("weight")
		if w.Retention.CensoredShare != censored || w.Retention.P99 != 5 {
			t.Errorf("%s: %+v", phase, w.Retention)
		}
	}
}

// TestMetricsFile is mrm-trace's file: its columns, and the figures as they are.
func TestMetricsFile(t *testing.T) {
	var b bytes.Buffer
	r := analyze(t, decodeRun(t), Options{})
	if err := r.WriteMetrics(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	want := "region_type,n_regions,bytes,write_once_ratio,retention_p50_s,retention_p90_s,retention_p99_s," +
		"retention_max_s,read_freq_hz,reads,writes,working_set_bytes,iai_p50_ns,iai_p99_ns,locality_score,mrm_label," +
		"censored_share,mrm_trace_retention_p50_s,mrm_trace_retention_p90_s,mrm_trace_retention_p99_s," +
		"mrm_trace_write_once_ratio,mrm_trace_unique_pages,mrm_trace_suitability"
	if got := strings.Join(rows[0], ","); got != want {
		t.Errorf("columns %s", got)
	}
	if got := strings.Join(rows[1][:8], ","); got != "weight,2,4000,1,30,30,30,30" {
		t.Errorf("weights %s", got)
	}
	for _, row := range rows[1:] {
		if len(row) != 23 {
			t.Errorf("%d cells", len(row))
		}
		for i, cell := range row[1:15] {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				t.Errorf("%s: %v", rows[0][i+1], err)
			}
		}
	}
}

// TestJSONKeys: the keys of compute_all are there, each with what it is about.
func TestJSONKeys(t *testing.T) {
	text, err := json.Marshal(analyze(t, decodeRun(t), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"retention_per_region", "retention_summary", "write_once", "read_freq",
		"working_set_per_region", "working_set_summary",
		"locality_per_region", "locality_summary", "iai", "suitability"} {
		if len(all[key]) < 10 {
			t.Errorf("%s: %s", key, all[key])
		}
	}
	var retention map[string]struct {
		P99 float64 `json:"p99_s"`
	}
	if err := json.Unmarshal(all["retention_summary"], &retention); err != nil || retention["weight"].P99 != 30 {
		t.Errorf("%v: %+v", err, retention)
	}
}

// TestText compares what people read with golden files.
func TestText(t *testing.T) {
	r := analyze(t, decodeRun(t), Options{})
	r.Path = "RUN"
	for _, by := range Tables[:3] {
		var b bytes.Buffer
		if err := r.WriteText(&b, by, 3); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "text."+string(by)+".txt")
		if *update {
			writeFile(t, "testdata", "text."+string(by)+".txt", b.Bytes())
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s: %v; run with -update and look at the difference:\n%s", golden, err, b.String())
		}
		b.Reset()
		if err := r.WriteCSV(&b, by); err != nil || b.Len() == 0 {
			t.Errorf("%s: %v", by, err)
		}
	}
	var b bytes.Buffer
	if err := r.WriteText(&b, ByTime, 0); err != nil || strings.Count(b.String(), "\n") != len(r.Traffic.Bins)+1 ||
		!strings.Contains(b.String(), "kv_cache_bytes_written") {
		t.Errorf("%v: %.300s", err, b.String())
	}
	if err := r.WriteCSV(&bytes.Buffer{}, "week"); err == nil ||
		!strings.Contains(err.Error(), "use type, region, step, time") {
		t.Error(err)
	}
}

// traceParts are the names of a table's parts.
var traceParts = []string{rundir.TraceName, "trace.001.parquet", "trace.002.parquet"}

// TestGroupsAndParts: where row groups and files end changes nothing.
func TestGroupsAndParts(t *testing.T) {
	rows := decode()
	write := func(dir string, group int, parts ...[]row) {
		for i, part := range parts {
			writeFile(t, dir, traceParts[i], parquet(t, traceSchema(table.Version), part, group))
		}
		writeFile(t, dir, rundir.RegionsName, regionMap(t, decodeRegions))
	}
	texts := map[string]bool{}
	for _, c := range []struct {
		group int
		parts [][]row
	}{{1000, [][]row{rows}}, {7, [][]row{rows}}, {50, [][]row{rows[:3], rows[3:200], rows[200:]}}} {
		dir := t.TempDir()
		write(dir, c.group, c.parts...)
		r := analyze(t, dir, Options{})
		if r.Parts != len(c.parts) {
			t.Errorf("%d parts", r.Parts)
		}
		r.Path, r.Parts = "", 0
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts[string(text)] = true
	}
	if len(texts) != 1 {
		t.Errorf("%d different reports", len(texts))
	}
	dir := t.TempDir()
	write(dir, 50, rows[:3], rows[3:200], rows[200:])
	if err := os.Remove(filepath.Join(dir, traceParts[1])); err != nil {
		t.Fatal(err)
	}
	if r := analyze(t, dir, Options{}); !strings.Contains(strings.Join(r.Notes, "\n"), "trace.001.parquet") {
		t.Errorf("%q", r.Notes)
	}
}

// TestWindows: a ledger of sums over windows says what sums say. Weights are read as a whole; of a cache only bytes
// are known.
func TestWindows(t *testing.T) {
	var rows []row
	for _, w := range []struct{ region, offset, size int }{{1, 0, 1000}, {2, 1024, 3000}} {
		rows = append(rows, access(0, write, weight, w.region, 1, w.offset, w.size).with(memtrace.TracePhase,
			"weight_load", memtrace.TraceFlags, int(memtrace.TraceLoaded)))
	}
	for at := range 10 {
		sum := func(op memtrace.AccessOp, kind memtrace.RegionType, region, size, n int) {
			rows = append(rows, access(int64(at)*second, op, kind, region, 1, 0, size).with(memtrace.TraceOffset, nil,
				memtrace.TracePieces, nil, memtrace.TraceCount, n, memtrace.TraceWindow, int(second)))
		}
		sum(read, weight, 1, 4000, 4)
		sum(read, weight, 2, 12000, 4)
		sum(write, kv, 3, 256, 4)
		sum(read, kv, 3, 256*(at+1), 4)
	}
	dir := run(t, rows, 100)
	writeFile(t, dir, rundir.RegionsName, regionMap(t, decodeRegions))
	r := analyze(t, dir, Options{})
	w, c := r.Type("weight"), r.Type("kv_cache")
	if w.BytesRead != 160_000 || w.Reads != 80 || w.Retention.P99 != 9 || *w.WriteOnce != 1 || len(w.WorkingSet) != 1 ||
		w.WorkingSet[0].MaxBytes != 4000 || w.IAI != nil || w.Reuse != nil {
		t.Errorf("%+v, %+v", w.Figures, w.WorkingSet)
	}
	if c.BytesWritten != 2560 || c.Reads != 40 || c.Retention != nil || c.WriteOnce != nil || c.Label != "" ||
		len(c.WorkingSet) != 0 || c.Coarse != 80 {
		t.Errorf("%+v", c.Figures)
	}
	if r.Traffic.WidthNS < second || len(r.Traffic.Steps) != 0 ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "--tap-ledger windows") {
		t.Errorf("%d ns, %q", r.Traffic.WidthNS, r.Notes)
	}
}

// TestStopped: the accesses of a run that was not recorded to its end are not all.
func TestStopped(t *testing.T) {
	dir := decodeRun(t)
	stopped := rundir.Stopped{Cause: "disk_full"}
	about, err := json.Marshal(rundir.Metadata{Version: rundir.MetadataVersion, Stopped: &stopped})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, rundir.MetadataName, about)
	const want = "recording stopped before the program did (disk_full)"
	if r := analyze(t, dir, Options{}); !slices.Contains(r.Notes, want) {
		t.Errorf("%q", r.Notes)
	}
}

// TestGivenBack: a report of accesses, the oldest of which are gone, says so and where they are.
func TestGivenBack(t *testing.T) {
	rotated := &rundir.Rotated{}
	rotated.AddPart(rundir.TraceName, 40)
	rotated.AddPart(rundir.TraceName, 2)
	moved := &rundir.Moved{To: "s3://b/run_1", Files: []rundir.File{{Name: "resource.jsonl"},
		{Name: "trace.000.parquet"}, {Name: "trace.001.parquet"}}}
	for want, m := range map[string]rundir.Metadata{
		"the oldest 42 rows of accesses were given back to hold the size of the run": {Rotated: rotated},
		"the oldest 2 parts of trace.parquet are in s3://b/run_1 alone":              {Moved: moved},
		"": {},
	} {
		dir := decodeRun(t)
		m.Version = rundir.MetadataVersion
		about, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, rundir.MetadataName, about)
		r := analyze(t, dir, Options{})
		var text, object strings.Builder
		if err := errors.Join(r.WriteText(&text, ByType, 0), json.NewEncoder(&object).Encode(r)); err != nil {
			t.Fatal(err)
		}
		line, key := "NOT WHOLE "+want+": the figures are of the others", `"given_back":"`+want+`"`
		if there := want != ""; strings.Contains(text.String(), line) != there ||
			strings.Contains(object.String(), key) != there {
			t.Errorf("%q: %s%s", want, text.String(), object.String())
		}
	}
}

// TestSegment: what a segment has not is in its run.
func TestSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), rundir.SegmentName(1))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Analyze(t.Context(), dir, Options{})
	if !errors.Is(err, ErrNoTable) || !strings.HasSuffix(err.Error(), "give the run, "+filepath.Dir(dir)) {
		t.Error(err)
	}
}
