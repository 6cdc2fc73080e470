//go:build linux

package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// tracesOf reads the parts of a run's table of accesses that are there, in order.
func tracesOf(t *testing.T, dir string) []accessRow {
	t.Helper()
	names, err := table.Paths(dir, rundir.TraceName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var parts [][]byte
	for _, name := range names {
		parts = append(parts, slurp(t, name))
	}
	return accessRows(t, parts...)
}

// ledgerOf records a program's accesses.
func ledgerOf(t *testing.T, args ...string) (rows []accessRow, dir string) {
	t.Helper()
	run := llamatap(t, args...).good(t)
	if len(run.dirs) != 1 {
		t.Fatalf("runs: %v\n%s", run.dirs, run.stderr)
	}
	return tracesOf(t, run.dirs[0]), run.dirs[0]
}

// TestLedgerConserves: per token that is decoded, a dense model reads each of its weights once, of the table of
// tokens one row (and all of it where it is the output's weights too), writes a row of keys and of values per
// layer, and reads those that its token may see.
func TestLedgerConserves(t *testing.T) {
	for _, c := range []struct {
		arch string
		typ  gguf.Type
		args []string
	}{{"", 0, nil}, {"", 0, []string{"-fa", "off"}}, {"llama", gguf.Q8_0, []string{"-fa", "on", "-ctk", "q8_0",
		"-ctv", "q8_0"}}, {"qwen2", gguf.F16, nil}} {
		t.Run(fmt.Sprint(c.arch, c.args), func(t *testing.T) {
			t.Parallel()
			model := testenv.Model(t)
			if c.arch != "" {
				model = synthetic(t, c.arch, c.typ, nil)
			}
			file, err := gguf.Open(model)
			if err != nil {
				t.Fatal(err)
			}
			rows, dir := ledgerOf(t, append([]string{"llama-completion", "--tap-ledger", "-m", model, "-p", prompt,
				"-n", "5", "--temp", "0", "-t", "1", "-c", "256", "-no-cnv", "--no-repack"}, c.args...)...)
			if asked := *metadata(t, dir).Tap.NodesAsked; asked != 0 {
				t.Errorf("ggml asked for %d nodes: an eval callback was set, and nobody needs one", asked)
			}
			weights := int64(0)
			for i := range file.Tensors {
				w := &file.Tensors[i]
				_, untied := file.Tensor("output.weight")
				if w.Name == "token_embd.weight" {
					weights += w.Bytes / w.Shape[1]
				}
				if w.Name != "token_embd.weight" || !untied {
					weights += w.Bytes
				}
			}
			cell := cellBytes(t, file, slices.Contains(c.args, "q8_0"))
			first := int64(len(tokenize(t, textFile(t, prompt))))
			if c.arch != "" {
				first = firstDecoded(rows)
			}
			decoded := 0
			for _, e := range byGraph(rows) {
				if e.token < first || e.phase != "generation" {
					continue
				}
				decoded++
				want := sums{weights: weights, written: cell, read: cell * (e.token + 1)}
				if got := (sums{e.weights, e.written, e.read}); got != want {
					t.Errorf("token %d: %+v, want %+v", e.token, got, want)
				}
			}
			if decoded != 4 {
				t.Errorf("%d tokens were decoded", decoded)
			}
		})
	}
}

// cellBytes is how much memory a token takes in a cache of F16 or Q8_0.
func cellBytes(t *testing.T, file *gguf.File, quantised bool) int64 {
	t.Helper()
	arch, _ := file.Metadata.Text("general.architecture")
	number := func(key string) int64 {
		n, ok := file.Metadata.Int(arch + "." + key)
		if !ok {
			t.Fatalf("there is no %s", key)
		}
		return n
	}
	width := number("embedding_length") / number("attention.head_count") * number("attention.head_count_kv")
	bytes := 2 * width
	if quantised {
		bytes = width / 32 * 34
	}
	return 2 * number("block_count") * bytes
}

// sums are bytes of one execution: weights that were read, cells that were written, and read.
type sums struct{ weights, written, read int64 }

// graphSums is what rows have of an execution.
type graphSums struct {
	sums
	graph, token int64
	phase        string
	tokens       map[int64]bool
}

// byGraph sums rows up, by execution.
func byGraph(rows []accessRow) (all []*graphSums) {
	of := map[int64]*graphSums{}
	for i := range rows {
		r := &rows[i]
		if r.graph < 0 {
			continue
		}
		e := of[r.graph]
		if e == nil {
			e = &graphSums{graph: r.graph, token: r.token, phase: r.phase, tokens: map[int64]bool{}}
			of[r.graph] = e
			all = append(all, e)
		}
		if r.token >= 0 {
			e.tokens[r.token] = true
		}
		switch {
		case r.region == "weight" && r.op == "read":
			e.weights += r.size
		case r.region == "kv_cache" && r.op == "write":
			e.written += r.size
		case r.region == "kv_cache" && r.op == "read" && r.flags&int64(memtrace.TracePadded) == 0:
			e.read += r.size
		}
	}
	return all
}

// firstDecoded is the first token that is computed alone.
func firstDecoded(rows []accessRow) int64 {
	for _, e := range byGraph(rows) {
		if e.phase == "generation" && len(e.tokens) == 1 && e.token > 0 {
			return e.token
		}
	}
	return -1
}

// TestShortLedger: of a run of 32 tokens, each of which has few before it that are alike, a row of the ledger takes
// no more than a byte all the same, and that with everything that a file has once but its descriptions of columns.
func TestShortLedger(t *testing.T) {
	model := synthetic(t, "llama", gguf.Q8_0, func(c *synth.Config) { c.Layers = 16 })
	rows, dir := ledgerOf(t, "llama-completion", "--tap-ledger", "-m", model, "-p", prompt, "-n", "32", "--temp", "0",
		"-t", "1", "-c", "512", "-no-cnv", "--ignore-eos")
	size := asOneTable(t, dir) - schemaBytes(t, dir)
	if len(rows) < 20000 || size > len(rows) {
		t.Errorf("%d rows take %d bytes: %.2f each", len(rows), size, float64(size)/float64(len(rows)))
	}
	t.Logf("%d rows take %d bytes: %.2f each", len(rows), size, float64(size)/float64(len(rows)))
}

// schemaBytes is what the descriptions, units and types of a table's columns take in its file, however many rows it
// has.
func schemaBytes(t *testing.T, dir string) (n int) {
	t.Helper()
	opened, err := table.Open(dir, rundir.TraceName)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for _, key := range []string{"ARROW:schema", "pandas"} {
		text, _ := opened.Metadata(key)
		n += len(text)
	}
	return n
}

// asOneTable is how many bytes a run's table of accesses takes as one file. It is one, unless the run took longer
// than half a minute: then it has several parts, each with all that a file has once, and their rows are put into
// one. That is done with the rows of a single file too, which must come out as large as it is, so that it is known
// to be a measure.
func asOneTable(t *testing.T, dir string) int {
	t.Helper()
	names, err := table.Paths(dir, rundir.TraceName)
	if err != nil {
		t.Fatal(err)
	}
	var joined bytes.Buffer
	w, err := table.NewParquetOptions(&joined, ledger.Schema(), table.Options{PageBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := appendRows(w, slurp(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(names) > 1 {
		return joined.Len()
	}
	size := len(slurp(t, names[0]))
	if difference := joined.Len() - size; max(difference, -difference) > size/10 {
		t.Errorf("the file has %d bytes, and its rows in one of their own %d", size, joined.Len())
	}
	return size
}

// appendRows appends all rows of a table of accesses to another.
func appendRows(w *table.Parquet, file []byte) error {
	r, err := table.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	s := ledger.Schema()
	b := table.NewBatch(s)
	for group := range r.Groups() {
		for i, c := range s.Columns {
			v, err := r.Column(group, c.Name)
			if err != nil {
				return err
			}
			for row := range int(r.GroupRows(group)) {
				switch {
				case !v.Valid[row]:
					b.Extend(i, []int64{0}, []bool{false})
				case c.Kind == table.Text:
					b.Fill(i, b.Code(i, v.Texts[row]), 1)
				default:
					b.Fill(i, v.Ints[row], 1)
				}
			}
		}
		if err := b.EndRows(int(r.GroupRows(group))); err != nil {
			return err
		}
		if err := w.Append(b); err != nil {
			return err
		}
		b.Reset()
	}
	return nil
}

// TestLedgerOnDevice: what a device, the CPU behind a socket, reads and writes is what the CPU does itself, row by
// row; only where differs.
func TestLedgerOnDevice(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	for _, arch := range archs(t, "qwen3moe", "jamba") {
		t.Run(arch, func(t *testing.T) {
			args := []string{"llama-completion", "--tap-ledger", "-m", synthetic(t, arch, gguf.F16, nil), "-p", prompt,
				"-n", "4", "--temp", "0", "-t", "1", "-c", "512", "-ub", "16", "-no-cnv"}
			cpu, dir := ledgerOf(t, append(args, "-dev", "none", "--no-repack")...)
			if asked := *metadata(t, dir).Tap.NodesAsked; asked != 0 {
				t.Errorf("ggml asked for %d nodes of %s: the chosen experts stay until the graph is computed", asked,
					arch)
			}
			there, _ := ledgerOf(t, append(args, "--rpc", endpoint, "-ngl", "99")...)
			equalLedgers(t, there, cpu)
		})
	}
}

// equalLedgers compares what devices, which compute most, read and write with what the CPU does, but for where.
func equalLedgers(t *testing.T, there, cpu []accessRow) {
	t.Helper()
	strip := func(rows []accessRow) (stripped []accessRow, far int) {
		for _, r := range rows {
			if r.graph < 0 {
				continue
			}
			if strings.HasPrefix(r.device, "RPC") {
				if far++; r.addr >= 0 {
					t.Errorf("an address on a device: %+v", r)
				}
			}
			r.device, r.id, r.buffer, r.offset, r.addr, r.ts = "", 0, 0, 0, 0, 0
			stripped = append(stripped, r)
		}
		return stripped, far
	}
	a, _ := strip(cpu)
	b, far := strip(there)
	if len(a) != len(b) || far < len(b)/2 {
		t.Fatalf("%d rows, %d on devices, of these %d in their memory", len(a), len(b), far)
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("row %d: %+v on the CPU,\n%+v on devices", i, a[i], b[i])
		}
	}
}

// TestLedgerWindows: a run in windows reads and writes in each region what the same run in rows does.
func TestLedgerWindows(t *testing.T) {
	args := append([]string{"run", "--tap-ledger"}, generate(40)...)
	total := func(rows []accessRow, dir string) map[string]int64 { // numbers of regions are another in each process
		sums, names := map[string]int64{}, regionNames(t, dir)
		for _, r := range rows {
			key := fmt.Sprint(r.op, r.phase, r.region, " ", names[r.id], r.flags)
			sums[key+" bytes"] += r.size
			sums[key+" accesses"] += r.count
		}
		return sums
	}
	rows, rowsDir := ledgerOf(t, args...)
	windows, dir := ledgerOf(t, slices.Insert(args, 2, "--tap-ledger=windows", "--tap-ledger-window", "20ms")...)
	a, b := total(rows, rowsDir), total(windows, dir)
	for key, n := range a {
		if b[key] != n {
			t.Errorf("%s: %d in rows, %d in windows", key, n, b[key])
		}
	}
	if len(a) != len(b) || len(windows) > len(rows)/3 {
		t.Errorf("%d sums, %d of windows; %d rows, %d windows", len(a), len(b), len(rows), len(windows))
	}
	if v := verifyJSON(t, dir); !v.OK || !v.Sealed {
		t.Errorf("%+v", v)
	}
}

// regionNames reads what the regions of a run are called.
func regionNames(t *testing.T, dir string) map[int64]string {
	t.Helper()
	r, err := table.NewReader(bytes.NewReader(slurp(t, filepath.Join(dir, rundir.RegionsName))))
	if err != nil {
		t.Fatal(err)
	}
	names := map[int64]string{}
	for group := range r.Groups() {
		id, err := r.Column(group, "region_id")
		if err != nil {
			t.Fatal(err)
		}
		name, err := r.Column(group, "name")
		if err != nil {
			t.Fatal(err)
		}
		for i := range id.Ints {
			names[id.Ints[i]] = name.Texts[i]
		}
	}
	return names
}

const tableOfAccesses = `
import sys, glob, pandas, pyarrow.parquet as pq, duckdb
folder = sys.argv[1]
f = pq.ParquetFile(folder + "/trace.parquet")
assert f.schema_arrow.metadata[b"llamatap_schema_version"] == b"2.0" and \
    b"llamatap_ledger" in f.schema_arrow.metadata, f.schema_arrow.metadata
columns = """ts_ns phase op addr size region_id region_type layer token_index seq_id kv_block tid device collector
graph_seq op_seq time_source ctx cache_level latency_cycles symbol weight
buffer_id offset ggml_op operand pieces stride flags count window_ns pid data_symbol step cpu""".split()
assert f.schema_arrow.names == columns, f.schema_arrow.names
types = {n: str(f.schema_arrow.field(n).type) for n in columns}
assert types["ts_ns"] == "timestamp[ns]" and types["window_ns"] == "duration[ns]" and \
    types["graph_seq"] == types["region_id"] == "int64" and types["addr"] == types["size"] == "uint64" and \
    types["layer"] == types["op_seq"] == types["token_index"] == "int32", types
about = [f.schema_arrow.field(n).metadata for n in columns]
assert all(m[b"description"] for m in about) and about[4][b"unit"] == b"bytes", about
assert types["phase"].endswith("string") or types["phase"].startswith("dictionary"), types
d = pandas.read_parquet(folder + "/trace.parquet")
assert set(d.collector) == {"graph"} and set(d.op) == {"read", "write", "alloc", "free"} and \
    {"weight_load", "generation", "teardown"} <= set(d.phase) <= \
    {"weight_load", "setup", "generation", "teardown"}, (set(d.op), set(d.phase))
g = d[d.phase == "generation"]
steps = g[g.graph_seq.notna()].groupby("step").token_index.agg(["min", "max"])
assert list(steps.index) == ["decode", "prefill"] and steps["min"]["prefill"] == 0 and \
    steps["max"]["prefill"] < steps["min"]["decode"], steps
assert d[d.phase.isin(["setup", "weight_load", "teardown"])].step.isna().all()
m = pandas.read_parquet(folder + "/region_map.parquet")
j = d[d.region_id.notna()].merge(m, on="region_id", suffixes=("", "_of"))
assert len(j) == d.region_id.notna().sum() and (j.region_type == j.region_type_of).all(), len(j)
w = j[(j.region_type == "weight") & (j.op == "read")].groupby("region_id")["size"].sum()
r = m.set_index("region_id").bytes_read
assert (w == r[w.index]).all(), (w, r[w.index])
g = d[d.graph_seq.notna()]
assert g.graph_seq.is_monotonic_increasing and \
    (g.groupby("graph_seq").op_seq.apply(lambda s: s.is_monotonic_increasing)).all()
print(duckdb.sql(f"select op, region_type, count(*), sum(size) from '{folder}/trace*.parquet' "
    "group by all order by all").fetchall())
`

// TestOthersReadAccesses lets pandas, pyarrow and DuckDB read a run's table of accesses, and hold it against the
// map of its regions.
func TestOthersReadAccesses(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	_, dir := ledgerOf(t, append([]string{"run", "--tap-ledger"}, generate(12)...)...)
	seen, err := exec.Command(python, "-c", tableOfAccesses, dir).CombinedOutput()
	if err != nil || !strings.Contains(string(seen), "kv_cache") {
		t.Errorf("%v: %s", err, seen)
	}
}

// TestLedgerKilled kills the collector in the middle of a run: the parts of the table that were complete can be
// read, and follow each other.
func TestLedgerKilled(t *testing.T) {
	testenv.Slow(t) // a part is complete after half a minute
	out := t.TempDir()
	cmd := command(t, slices.Concat([]string{"run", "--tap-ledger", "--tap-on-failure", "stop"}, endless)...)
	cmd.Env = append(cmd.Environ(), "LLAMATAP_OUT="+out)
	cmd.WaitDelay = testenv.Patience()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	parts := func() []string {
		files, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "trace*.parquet"))
		return files
	}
	testenv.Until(t, "a part is complete", func() bool { return len(parts()) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	rows := tracesOf(t, filepath.Dir(parts()[0]))
	last := int64(-1)
	for _, e := range byGraph(rows) {
		if last >= 0 && e.graph != last+1 {
			t.Errorf("execution %d follows %d", e.graph, last)
		}
		last = e.graph
	}
	if last < 10 {
		t.Errorf("%d rows up to execution %d", len(rows), last)
	}
}

// TestLedgerDiskFull fills the disk: the run ends, says why, and what was complete before is there, whole.
func TestLedgerDiskFull(t *testing.T) {
	disk := smallDisk(t, "300k")
	args := slices.Concat([]string{"run", "--tap-ledger", "--tap-on-failure", "stop", "--tap-min-free", "0"}, endless)
	o := llamatapIn(t, disk, args...)
	if o.status == 0 || !oneLine(lastLine(o.stderr), "full", "--tap-out") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	for _, dir := range o.dirs {
		rows := tracesOf(t, dir)
		v, m := verifyJSON(t, dir), metadata(t, dir)
		if !v.Sealed || m.Stopped == nil || m.Stopped.Cause != "disk_full" {
			t.Errorf("%+v, %+v; %d rows", v, m.Stopped, len(rows))
		}
	}
	if len(o.dirs) != 1 {
		t.Errorf("runs: %v", o.dirs)
	}
}

// TestLedgerMaxDisk: the table counts for the bound of the disk, what is packed and not written yet too; at the
// bound recording stops, and what was recorded is there, without a gap.
func TestLedgerMaxDisk(t *testing.T) {
	testenv.Slow(t) // seven million rows
	o := llamatap(t, slices.Concat([]string{"run", "--tap-ledger", "--tap-max-disk", "4M:stop",
		"--tap-on-failure", "stop"}, endless, []string{"-c", "512", "--context-shift", "-n", "8000"})...)
	if len(o.dirs) != 1 {
		t.Fatalf("runs: %v\n%s", o.dirs, o.stderr)
	}
	m := metadata(t, o.dirs[0])
	if m.Stopped == nil || m.Stopped.Cause != "max_disk" {
		t.Fatalf("%+v\n%s", m.Stopped, o.stderr)
	}
	if n := bytesBelow(o.dirs[0]); n > 4<<20 || n < 1<<20 {
		t.Errorf("%d bytes", n)
	}
	last := int64(-1)
	for _, e := range byGraph(tracesOf(t, o.dirs[0])) {
		if last >= 0 && e.graph != last+1 {
			t.Errorf("execution %d follows %d", e.graph, last)
		}
		last = e.graph
	}
	if last < 1000 {
		t.Errorf("the last execution is %d\n%s", last, o.stderr)
	}
}

// TestShiftOfContext: a shift's graph rotates the keys of all cells of the cache, empty ones too. So says the
// ledger, and so do the bytes of the graph; the cache's own events count the cells in use.
func TestShiftOfContext(t *testing.T) {
	rows, dir := ledgerOf(t, "run", "--tap-ledger", "rows", "--tap-kv", "--tap-resource-level", "DETAILED",
		"-m", testenv.Model(t), "-p", prompt, "-n", "300",
		"-c", "256", "--keep", "2", "--context-shift", "--ignore-eos", "--temp", "0", "-t", "1")
	events := eventsOf(t, filepath.Join(dir, "resource.jsonl"))
	shifts := map[int64]int64{} // bytes of keys in use
	all := int64(0)             // of keys in the cache
	for _, g := range of[resource.Graph](events) {
		if g.Phase != "maintenance" {
			continue
		}
		shifts[int64(g.Exec)] = 0
		for _, row := range rows {
			if row.phase == "maintenance" && row.graph == int64(g.Exec) && row.op == "write" &&
				row.region == "kv_cache" {
				all += row.size * max(row.count, 1)
			}
		}
		if all == 0 || g.BytesWritten == nil || *g.BytesWritten != all {
			t.Errorf("the graph of the shift writes %v, and the ledger says %d bytes", g, all)
		}
		break
	}
	for _, op := range of[resource.KV](events) {
		if op.Exec == nil || op.KeyWritten == nil {
			continue
		}
		if _, ok := shifts[int64(*op.Exec)]; ok {
			const cells = 256
			shifts[int64(*op.Exec)] += *op.KeyWritten / int64(op.Cells) * cells
		}
	}
	for exec, full := range shifts {
		if full != all {
			t.Errorf("execution %d: cells in use make %d bytes for all of the cache, and the ledger says %d",
				exec, full, all)
		}
	}
	if len(shifts) == 0 {
		t.Error("no shift")
	}
}
