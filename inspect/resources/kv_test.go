package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// kvLife is a life in a table of the test, for both layers' keys and values. Times are in seconds; none is -1.
type kvLife struct {
	seq                int64 // -1: not known
	cells              int64
	alloc, read, evict float64
	why                string
	origin             string
	cache              string
}

const kvBegin = int64(1_700_000_000_000_000_000)

func kvTable(t testing.TB, version string, lives []kvLife) string {
	t.Helper()
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, version}}}
	kinds := map[string]table.Kind{"kv": table.Text, "evict_reason": table.Text, "cache": table.Text,
		"origin": table.Text, "censored": table.Bool}
	at := map[string]int{}
	for i, name := range append([]string{"block_id"}, kvColumns...) {
		kind, ok := kinds[name]
		if !ok {
			kind = table.Int64
		}
		at[name] = i
		s.Columns = append(s.Columns, table.Column{Name: name, Kind: kind, Null: true})
	}
	var b bytes.Buffer
	out, err := table.NewParquet(&b, s)
	if err != nil {
		t.Fatal(err)
	}
	batch := table.NewBatch(s)
	for _, l := range lives {
		for layer := range int64(2) {
			for _, kv := range []string{"k", "v"} {
				kvPut(t, batch, at, l, layer, kv)
			}
		}
		if err := out.Write(batch); err != nil {
			t.Fatal(err)
		}
		batch.Reset()
	}
	last := kvcache.Snapshot{UnixNS: kvBegin + 10e9, Reuse: kvcache.Reuse{Requests: 3, Hits: 1, Needed: 40, Reused: 10}}
	last.Reuse.Gap.Add(2e9)
	last.Doubts.Found = 4
	last.Caches = []kvcache.Gauge{{Cache: kvcache.Base, Layers: 2, Streams: 1, Block: 8, CellBytes: 1024, Cells: 64,
		Used: 16, Free: 48, Occupancy: 0.25, Whole: true,
		Attended: &kvcache.Attended{Graphs: 50, OfGraphs: 217, Cells: 3200, Readable: 800, Free: 1600}}}
	last.Freed = []kvcache.Gauge{{Cache: kvcache.SWA, Layers: 2, Streams: 1, Block: 8, CellBytes: 512, Cells: 16,
		Used: 3, Free: 13, Occupancy: 3. / 16, FreedUnixNS: kvBegin + 7e9,
		Attended: &kvcache.Attended{Cells: 1000, Readable: 500}}} // of a version that did not count the graphs
	isForgotten := func(l kvLife) bool { return l.cache == "recurrent" }
	for i := 1; slices.ContainsFunc(lives, isForgotten) && i < kvcache.MaxFreed; i++ {
		last.Freed = append(last.Freed, kvcache.Gauge{Ctx: 9})
	}
	text, _ := json.Marshal(last)
	if err := errors.Join(out.AddMetadata(kvcache.SnapshotKey, string(text)), out.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, rundir.LivesName), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func kvPut(t testing.TB, b *table.Batch, at map[string]int, l kvLife, layer int64, kv string) {
	t.Helper()
	time := func(name string, s float64) {
		if s >= 0 {
			b.Int(at[name], kvBegin+int64(s*1e9))
		}
	}
	b.Int(at["layer"], layer)
	b.Text(at["kv"], kv)
	if l.seq >= 0 {
		b.Int(at["seq_id"], l.seq)
	}
	time("alloc_ns", l.alloc)
	time("first_write_ns", l.alloc)
	time("last_write_ns", l.alloc)
	time("first_read_ns", l.read)
	time("last_read_ns", l.read)
	time("evict_ns", l.evict)
	b.Int(at["n_writes"], l.cells)
	b.Int(at["n_reads"], 3*l.cells)
	if l.evict >= 0 {
		b.Text(at["evict_reason"], l.why)
	}
	b.Bool(at["censored"], l.evict < 0)
	b.Int(at["ctx"], 0)
	cache := l.cache
	if cache == "" {
		cache = "base"
	}
	b.Text(at["cache"], cache)
	b.Int(at["cells"], l.cells)
	b.Int(at["cell_bytes"], 256)
	b.Text(at["origin"], l.origin)
	if err := b.EndRow(); err != nil {
		t.Fatal(err)
	}
}

// kvLives is a run of ten seconds: two lives of sequence 0, of which one is evicted; one of sequence 1; one that
// was found; a window.
var kvLives = []kvLife{
	{seq: 0, cells: 8, alloc: 0, read: 4, evict: 5, why: "seq_rm", origin: "written"},
	{seq: 0, cells: 8, alloc: 5, read: 9, evict: -1, origin: "written"},
	{seq: 1, cells: 4, alloc: 0, read: 1, evict: 2, why: "clear", origin: "written"},
	{seq: 1, cells: 4, alloc: 2, read: 3, evict: 6, why: "overwrite", origin: "written"},
	{seq: -1, cells: 4, alloc: -1, read: 8, evict: -1, origin: "found"},
	{seq: 0, cells: 3, alloc: 1, read: 2, evict: 10, why: "overwrite", origin: "written", cache: "swa"},
}

// TestKV: each life counts once, whatever the layers; bytes are those of all; the timeline is exact.
func TestKV(t *testing.T) {
	k, err := OpenKV(context.Background(), kvTable(t, "1.3", kvLives), 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.Seconds != 10 || k.BeginUnixNS != kvBegin || k.Rows != 24 || len(k.Sequences) != 4 || len(k.Layers) != 8 ||
		len(k.Timeline) != 2 {
		t.Fatalf("%+v", k)
	}
	zero, one, unknown := k.Sequences[1], k.Sequences[2], k.Sequences[0]
	if zero.Lives != 2 || zero.Cells != 16 || zero.Ended["seq_rm"] != 1 || zero.Censored != 1 ||
		*zero.Lifetime.P50 != 5 || *zero.Idle.Max != 1 || zero.Writes != 16 {
		t.Errorf("sequence 0: %+v", zero)
	}
	if one.Ended["clear"] != 1 || one.Ended["overwrite"] != 1 || *one.Lifetime.Mean != 3 || *one.Lifetime.P50 != 2 ||
		*one.Lifetime.P90 != 4 || one.Lifetime.Count != 2 {
		t.Errorf("sequence 1: %+v", one)
	}
	if unknown.Seq != -1 || unknown.Found != 1 || unknown.Lifetime.Mean != nil || unknown.Censored != 1 {
		t.Errorf("unknown: %+v", unknown)
	}
	if l := k.Layers[0]; l.BytesWritten != 28*256 || l.BytesRead != 3*28*256 || l.Tensor != "k" {
		t.Errorf("layer: %+v", l)
	}
	want := []float64{12, 12, 12, 12, 12, 12, 8, 8, 12, 12}
	for i, cells := range k.Timeline[0].Cells {
		if math.Abs(cells-want[i]) > 1e-6 {
			t.Errorf("second %d: %v cells, want %v", i, cells, want[i])
		}
	}
	if k.Timeline[0].Total != 64 || k.Timeline[1].Cache != "swa" || k.Timeline[1].Total != 16 {
		t.Errorf("%+v", k.Timeline)
	}
}

const kvWant = `run     RUN
seen    10.0 s, 24 rows, schema 1.0
reuse   10 of the 40 cells that prompts needed were there (25.0 %), for 1 of 3 requests; ` +
	`the mean of these requests came 2.00 s after its cells were last used
loaded  4 cells came with a state, and can be seen from the first read on

  ctx  cache  cells    in use at the end  shared  sequences  layers  bytes per cell      size  block
    0   base     64          16 (25.0 %)       0          0       2            1024  64.0 KiB      8
    0    swa     16  at least 3 (18.8 %)       0          0       2             512  8.00 KiB      8
ctx 0, base: attention of each layer read 3.20 k cells in 50 of 217 graphs: 25.0 % readable by a token, 50.0 % free ` +
	`below the last cell in use
ctx 0, swa: attention of each layer read 1.00 k cells: 50.0 % readable by a token, 0.0 % free below the last cell in use

ctx 0, base: cells in blocks of 8 in use
64 │
   │
   │
   │
32 │
   │
   │▄▄▄▄▄▄  ▄▄
   │██████████
 0 └──────────
    0   10.0 s

ctx 0, swa: cells in blocks of 8 in use
16 │
   │
   │
   │
 8 │
   │
   │ ▄▄▄▄▄▄▄▄▄
   │ █████████
 0 └──────────
    0   10.0 s

  ctx  cache  seq_id  lives  cells  ended                  why  censored  life p50     max  idle p50     max
    0   base       ?      1      4      0                              1         -       -         -       -
    0   base       0      2     16      1             seq_rm 1         1    5.00 s  5.00 s    1.00 s  1.00 s
    0   base       1      2      8      2  clear 1 overwrite 1         0    2.00 s  4.00 s    1.00 s  3.00 s
    0    swa       0      1      3      1          overwrite 1         0    9.00 s  9.00 s    8.00 s  8.00 s
`

// TestKVFreed: what a cache held when it was freed is drawn until then; of one that nobody remembers, until it was
// touched.
func TestKVFreed(t *testing.T) {
	k, err := OpenKV(context.Background(), kvTable(t, "2.0", []kvLife{
		{seq: 0, cells: 8, alloc: 0, read: 4, evict: -1, origin: "written"},
		{seq: 0, cells: 3, alloc: 1, read: 5, evict: -1, origin: "written", cache: "swa"},
		{seq: 0, cells: 1, alloc: 2, read: 3, evict: -1, origin: "written", cache: "recurrent"},
	}), 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	cells := func(i int) string { return fmt.Sprint(k.Timeline[i].Cells) }
	if cells(0) != "[8 8 8 8 8 8 8 8 8 8]" || cells(1) != "[0 0 1 0 0 0 0 0 0 0]" ||
		cells(2) != "[0 3 3 3 3 3 3 0 0 0]" {
		t.Errorf("%+v", k.Timeline)
	}
}

// TestKVText holds what is printed.
func TestKVText(t *testing.T) {
	k, err := OpenKV(context.Background(), kvTable(t, "1.0", kvLives), 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.Path = "RUN"
	var b strings.Builder
	if err := k.WriteText(&b, KVBySequence, 100); err != nil {
		t.Fatal(err)
	}
	var trimmed []string
	for _, line := range strings.Split(b.String(), "\n") {
		trimmed = append(trimmed, strings.TrimRight(line, " "))
	}
	if got := strings.Join(trimmed, "\n"); got != kvWant {
		t.Errorf("%s\nwant\n%s", got, kvWant)
	}
	for by, want := range map[KVBy]string{
		KVBySequence: "0,base,1,2,8,0,0,1,1,0,0,8,24,3,2,4,4,2,1,3,3\n", KVByLayer: "0,base,1,v,256,28,84,7168,21504\n",
		KVByTime: "0,base,6,8,64\n",
	} {
		var b strings.Builder
		if err := k.WriteCSV(&b, by); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %v\n%s\nwant %s", by, err, b.String(), want)
		}
		if err := k.WriteText(&b, by, 3); err != nil {
			t.Error(err)
		}
	}
}

// TestKVErrors: what is wrong with a file is said with what to do.
func TestKVErrors(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.parquet")
	if err := os.WriteFile(other, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/no/such/run":           "there is no such file or folder: give a run directory or a .parquet file",
		t.TempDir():              "record with --tap-kv; a live run has none yet",
		other:                    "the file was not completed, or is not a table",
		kvTable(t, "3.0", nil):   "schema version 3.0, known is 2.0: read it with a newer llamatap",
		kvTable(t, "nine", nil):  "schema version nine",
		kvTable(t, "1.999", nil): "",
	} {
		k, err := OpenKV(context.Background(), path, 5, nil)
		switch {
		case want == "" && (err != nil || k.Seconds < 0 || len(k.Sequences) != 0):
			t.Errorf("%s: %v", path, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := OpenKV(ctx, kvTable(t, "1.0", kvLives), 5, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestStopped: figures of a run that was not recorded to its end say so.
func TestStopped(t *testing.T) {
	last := int64(16)
	about, err := json.Marshal(rundir.Metadata{Version: rundir.MetadataVersion,
		Stopped: &rundir.Stopped{Cause: "min_free", LastToken: &last}})
	check(t, err)
	dir := kvTable(t, "1.0", kvLives)
	check(t, os.WriteFile(filepath.Join(dir, rundir.MetadataName), about, 0o600))
	k, err := OpenKV(t.Context(), dir, 10, nil)
	check(t, err)
	r, err := Summarize(t.Context(), directory(t, map[string]string{rundir.EventsName: aRun().String(),
		"manifest.json": manifest, rundir.MetadataName: string(about)}), nil, nil)
	check(t, err)
	var cells, events strings.Builder
	check(t, k.WriteText(&cells, KVBySequence, 100))
	check(t, r.WriteText(&events))
	for _, text := range []string{cells.String(), events.String()} {
		if !strings.Contains(text, "before the program did (min_free): nothing is known of what came after token 16") {
			t.Error(text)
		}
	}
}

// TestEventsLost: events that the log could not even count, as on a full disk, are in the account, and both the summary
// and the list of what a run holds print them.
func TestEventsLost(t *testing.T) {
	const want = "6000 of 6002 events (6000 to disk_full); all events of the 3 tokens that were computed after " +
		"recording stopped"
	about, err := json.Marshal(rundir.Metadata{Version: rundir.MetadataVersion, Lossy: true,
		Account: &rundir.Account{Events: &rundir.EventAccount{Written: 2, Lost: map[string]uint64{"disk_full": 6000},
			TokensAfter: 3}}})
	check(t, err)
	dir := directory(t, map[string]string{rundir.EventsName: aRun().String(), "manifest.json": manifest,
		rundir.MetadataName: string(about)})
	r, err := Summarize(t.Context(), dir, nil, nil)
	check(t, err)
	run, err := ReadRun(dir)
	check(t, err)
	var events, held strings.Builder
	check(t, r.WriteText(&events))
	check(t, run.WriteText(&held))
	for _, text := range []string{events.String(), held.String()} {
		if !strings.Contains(text, want) {
			t.Error(text)
		}
	}
}

// TestRepaired: a run that lost something after it was sealed does not pass for whole, though its account is.
func TestRepaired(t *testing.T) {
	about, err := json.Marshal(rundir.Metadata{Version: rundir.MetadataVersion, Lossy: true,
		Account: &rundir.Account{}, Repaired: []rundir.Repair{{What: []string{"resource.jsonl was not whole"}}}})
	check(t, err)
	r, err := Summarize(t.Context(), directory(t, map[string]string{rundir.EventsName: aRun().String(),
		"manifest.json": manifest, rundir.MetadataName: string(about)}), nil, nil)
	check(t, err)
	var text strings.Builder
	check(t, r.WriteText(&text))
	if !strings.Contains(text.String(), "is missing since, as a repair found") {
		t.Error(text.String())
	}
}

// TestSegment: what a segment has not is in its run.
func TestSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), rundir.SegmentName(1))
	check(t, os.Mkdir(dir, 0o700))
	_, cells := OpenKV(t.Context(), dir, 1, nil)
	_, events := Summarize(t.Context(), dir, nil, nil)
	want := "give the run, " + filepath.Dir(dir)
	if !errors.Is(cells, ErrNoKV) || !strings.HasSuffix(cells.Error(), want) || !errors.Is(events, ErrNoLog) ||
		!strings.HasSuffix(events.Error(), want) {
		t.Errorf("%v; %v", cells, events)
	}
}
