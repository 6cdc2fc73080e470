//go:build linux

package oracle

import (
	"bytes"
	"context"
	"encoding/csv"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	metrics "github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// tableOf reads columns of one of a run's tables, row by row.
func tableOf(t *testing.T, dir, name string, columns []string, each func(value func(column string) (int64, bool),
	text func(column string) string)) {
	t.Helper()
	r, err := table.NewReader(bytes.NewReader(slurp(t, filepath.Join(dir, name))))
	if err != nil {
		t.Fatal(err)
	}
	for group := range r.Groups() {
		values := map[string]table.Values{}
		for _, c := range columns {
			if values[c], err = r.Column(group, c); err != nil {
				t.Fatal(err)
			}
		}
		for i := range values[columns[0]].Valid {
			each(func(c string) (int64, bool) {
				return values[c].Ints[i], values[c].Valid[i]
			}, func(c string) string { return values[c].Texts[i] })
		}
	}
}

// usedBytes is what ops read and wrote of regions of a type.
type usedBytes struct{ read, written uint64 }

// TestMemoryOfRuns: what llamatap memory says of runs agrees with what other recorders of the same runs say: bytes
// with the table of regions, how long weights are needed with the times there, and cells with their rows and lives.
func TestMemoryOfRuns(t *testing.T) {
	for _, args := range [][]string{{"-fa", "on"}, {"-fa", "off"}} {
		run := llamatap(t, append([]string{"run", "--tap-ledger", "--tap-kv", "--tap-kv-block", "1", "-p", prompt,
			"-n", "12", "--temp", "0", "-t", "1", "-c", "256", "--no-warmup"}, args...)...).good(t)
		if len(run.dirs) != 1 {
			t.Fatalf("runs: %v\n%s", run.dirs, run.stderr)
		}
		dir := run.dirs[0]
		r, err := metrics.Analyze(context.Background(), dir, metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkUsed(t, dir, r)
		checkCells(t, dir, r)
		w := r.Type("weight")
		if w == nil || w.WriteOnce == nil || *w.WriteOnce != 1 || w.Retention.CensoredShare != 1 ||
			w.Source != metrics.Computed {
			t.Errorf("%v: weights %+v", args, w)
		}
		if c := r.Type("kv_cache"); *c.WriteOnce != 1 || c.Hulls != 0 || c.Coarse != 0 || c.Unsized != 0 {
			t.Errorf("%v: caches %+v", args, c.Figures)
		}
		checkCommand(t, dir, r)
	}
}

// checkUsed compares bytes by type, and the last read of each weight.
func checkUsed(t *testing.T, dir string, r *metrics.Report) {
	t.Helper()
	used := map[string]usedBytes{}
	lastRead, alloc, loaded := map[int64]int64{}, map[int64]int64{}, map[int64]int64{}
	tableOf(t, dir, rundir.TraceName, []string{"region_id", "flags", "ts_ns"}, func(value func(string) (int64, bool),
		_ func(string) string) {
		if flags, _ := value("flags"); memtrace.TraceFlag(flags)&memtrace.TraceLoaded != 0 {
			id, _ := value("region_id")
			loaded[id], _ = value("ts_ns")
		}
	})
	columns := []string{"region_id", "region_type", "bytes_read", "bytes_written", "last_read_ns", "alloc_ns"}
	tableOf(t, dir, rundir.RegionsName, columns, func(value func(string) (int64, bool), text func(string) string) {
		u := used[text("region_type")]
		read, _ := value("bytes_read")
		written, _ := value("bytes_written")
		used[text("region_type")] = usedBytes{u.read + uint64(read), u.written + uint64(written)}
		if id, _ := value("region_id"); text("region_type") == "weight" {
			lastRead[id], _ = value("last_read_ns")
			alloc[id], _ = value("alloc_ns")
		}
	})
	for i := range r.Types {
		m := &r.Types[i]
		got := usedBytes{m.BytesRead + m.Padded, m.BytesWritten}
		if m.Type == "weight" {
			got.written = 0 // loading is no op
		}
		if got != used[m.Type] || got.read == 0 {
			t.Errorf("%s: %+v, the table of regions has %+v", m.Type, got, used[m.Type])
		}
	}
	weights := 0
	for i := range r.Regions {
		g := &r.Regions[i]
		id := int64(g.ID)
		if g.Type != "weight" || g.Reads == 0 {
			continue
		}
		weights++
		if g.BytesWritten != g.Bytes {
			t.Errorf("%s: %d of %d bytes were loaded", g.Name, g.BytesWritten, g.Bytes)
		}
		if loaded[id] <= alloc[id] || loaded[id] >= lastRead[id] {
			t.Errorf("%s: memory came at %d, its loading ended at %d, the last read was at %d", g.Name, alloc[id],
				loaded[id], lastRead[id])
		}
		if last := lastRead[id] - loaded[id]; g.Retention.Max != float64(last)/1e9 {
			t.Errorf("%s is kept for %v s, the table of regions has %v since it was loaded", g.Name, g.Retention.Max,
				float64(last)/1e9)
		}
	}
	if weights < 10 {
		t.Errorf("%d weights", weights)
	}
}

// checkCells compares how long cells are needed with their writes: each is read until the end. As many blocks of
// one cell have lives.
func checkCells(t *testing.T, dir string, r *metrics.Report) {
	t.Helper()
	lives := 0
	tableOf(t, dir, rundir.LivesName, []string{"n_writes", "last_read_ns"}, func(value func(string) (int64, bool),
		_ func(string) string) {
		if n, _ := value("n_writes"); n != 1 {
			t.Errorf("a life of %d writes", n)
		}
		if _, ok := value("last_read_ns"); ok {
			lives++
		}
	})
	var written []int64
	last := int64(0)
	for _, row := range tracesOf(t, dir) {
		if row.region == "kv_cache" && row.op == "write" {
			written = append(written, row.ts)
		}
		if row.region == "kv_cache" && row.op == "read" {
			last = max(last, row.ts)
		}
	}
	if len(written) != lives || lives < 12 || len(r.KVBlocks) != 2 {
		t.Fatalf("%d cells written, %d lives, %+v", len(written), lives, r.KVBlocks)
	}
	mean := 0.0
	for _, ns := range written {
		mean += float64(last-ns) / 1e9 / float64(len(written))
	}
	q := r.Type("kv_cache").Retention
	if longest := float64(last-slices.Min(written)) / 1e9; q.Max != longest || math.Abs(q.Mean-mean) > 1e-9 {
		t.Errorf("cells are kept for %v s on average, %v at most; they were written %v and %v s before the last read",
			q.Mean, q.Max, mean, longest)
	}
}

// checkCommand compares what the command writes with the package.
func checkCommand(t *testing.T, dir string, r *metrics.Report) {
	t.Helper()
	out, err := command(t, "memory", dir, "--format", "csv").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	var want bytes.Buffer
	if err := r.WriteMetrics(&want); err != nil || !bytes.Equal(out, want.Bytes()) {
		t.Errorf("%v: the command writes %s\nwant %s", err, out, want.String())
	}
	if rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll(); err != nil || len(rows) != 1+len(r.Types) {
		t.Errorf("%d rows: %v", len(rows), err)
	}
	for _, form := range []string{"text", "json"} {
		if out, err := command(t, "memory", dir, "--format", form).Output(); err != nil ||
			!bytes.Contains(out, []byte("high_mrm")) && !bytes.Contains(out, []byte("low_mrm")) {
			t.Errorf("%s: %v: %.200s", form, err, out)
		}
	}
}

// TestMemoryAgrees: what page faults and scans for written pages show of a run and what the ledger records agree, as
// far as the ledger reaches: every fault on a weight is an access of its execution, weights are touched first in
// the same order, and what the ledger says was written into a cache was found written, and nothing else.
func TestMemoryAgrees(t *testing.T) {
	testenv.NeedRoot(t)
	run := llamatap(t, "run", "--tap-ledger", "--tap-samples", "faults,pages", "--tap-cold", "-p", prompt, "-n", "12",
		"--temp", "0", "-t", "1", "-c", "256", "--no-warmup", "--no-repack").good(t)
	r, err := metrics.Analyze(context.Background(), run.dirs[0], metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*metrics.Agreement{}
	for i := range r.Agreement {
		by[r.Agreement[i].Collector] = &r.Agreement[i]
	}
	fault, page := by["fault"], by["page"]
	if fault == nil || page == nil {
		t.Fatalf("%+v", r.Agreement)
	}
	for _, kind := range fault.Types {
		if kind.Type == "weight" && (kind.Compared < 5 || kind.Explained != kind.Compared) {
			t.Errorf("of %d faults on weights the ledger explains %d", kind.Compared, kind.Explained)
		}
	}
	if f := fault.FirstTouch; f == nil || f.KendallTau == nil || *f.KendallTau < 0.95 {
		t.Errorf("first touches: %+v", f)
	}
	caches := 0
	for _, w := range page.Written {
		if w.Type != "kv_cache" {
			continue
		}
		if caches++; w.Ledger < 12 || w.Found != w.Ledger || w.InLedger != w.Pages {
			t.Errorf("written pages of caches: %+v", w)
		}
	}
	if caches != 1 {
		t.Errorf("%+v", page.Written)
	}
}
