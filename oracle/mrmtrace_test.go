//go:build linux

package oracle

import (
	"encoding/csv"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// mrmTraceReads lets mrm-trace check the schemas of an exported run, and compute its metrics of it again. Its own
// times are floats, so that they are compared to a microsecond.
const mrmTraceReads = `
import sys, glob, json, pandas as pd
from mrm_trace.schema_version import check_parquet_schema
from mrm_trace.analyser import compute_all
from mrm_trace.reporter.metrics_csv import build_metrics_table
from mrm_trace.reporter.dataset_manifest import build_manifest_row
from mrm_trace.parser.writer import TRACE_SCHEMA
root = sys.argv[1]
d = glob.glob(root + "/*/*/*/trace.parquet")[0].rsplit("/", 1)[0]
for name in ("trace", "region_map", "kv_block_lifecycle"):
    check_parquet_schema(f"{d}/{name}.parquet", name)
trace = pd.read_parquet(d + "/trace.parquet")
assert list(trace.columns) == TRACE_SCHEMA.names and set(trace.op_type) == {"load", "store"} and \
    set(trace.phase) <= {"weight_load", "generation", "teardown"}
assert len(pd.read_parquet(d + "/kv_block_lifecycle.parquet")) > 0
a = compute_all(trace)
want, got = build_metrics_table(a), pd.read_csv(d + "/metrics.csv")
assert len(want) == len(got) >= 3 and list(got.columns[:len(want.columns)]) == list(want.columns)
for c in want.columns:
    for x, y in zip(want[c], got[c]):
        assert x == y or pd.isna(x) and pd.isna(y) or abs(x - y) < 1e-6, (c, x, y)
r = pd.read_parquet(d + "/region_map.parquet").set_index("region_id")
pages = a["working_set_per_region"].set_index("region_id").unique_pages
kept = a["retention_per_region"].set_index("region_id").retention_s
assert (r.mrm_trace_working_set_pages == pages.reindex(r.index)).all() and \
    (abs(r.mrm_trace_retention_s - kept.reindex(r.index)) < 1e-6).all()
m = json.load(open(d + "/metadata.json"))
assert m["generation"]["batch_size"] == 1, m["generation"]
line = pd.read_csv(root + "/manifest.csv").iloc[-1]
for k, v in build_manifest_row(m["run_id"], m, a, True).items():
    x = line[k]
    assert k == "recorded_at" or v in (None, "") and pd.isna(x) or v == x or abs(v - x) <= 1e-4, (k, v, x)
p = json.load(open(d + "/prompt_outputs.json"))["prompts"]
assert len(p) == 1 and p[0]["tokens_generated"] == 7 and p[0]["output"], p
`

// TestExportToMRMTrace lets mrm-trace's own code read a run that was exported for it. A second export adds to the
// folder.
func TestExportToMRMTrace(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "mrm_trace.analyser", "pandas")
	run := llamatap(t, "run", "--tap-ledger", "--tap-kv", "-p", prompt, "-n", "8", "-t", "1").good(t).dirs[0]
	out := filepath.Join(t.TempDir(), "results")
	llamatap(t, "export", run, "--to", "mrm-trace", "-o", out).good(t)
	if text, err := exec.Command(python, "-c", mrmTraceReads, out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if r := llamatap(t, "export", run, "--to", "mrm-trace", "-o", out); r.status == 0 {
		t.Error("an export replaces another one without --force")
	}
	llamatap(t, "export", run, "--to", "mrm-trace", "-o", out, "--force").good(t)
	text, err := os.ReadFile(filepath.Join(out, "manifest.csv"))
	if err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%v: %s", err, text)
	}
}

// mrmTraceWrites lets mrm-trace label samples and write a run of its own, with what it says of it.
const mrmTraceWrites = `
import sys, random
from pathlib import Path
import pandas as pd
from mrm_trace.labeller.labeller import TraceLabeller
from mrm_trace.analyser import compute_all
from mrm_trace.reporter.run_exporter import RunExporter
from mrm_trace.reporter.metrics_csv import build_metrics_table
random.seed(3)
pages = {"ggml_vec_dot_q4_K": 10, "llama_kv_cache_update": 500, "malloc": 900}
def rows():
    for i in range(4000):
        symbol = random.choice(list(pages))
        page = pages[symbol] + random.randrange(40)
        yield {"run_id": "r1", "sample_id": i, "timestamp_ns": 1_700_000_000_000_000_000 + i * 7_000_001,
            "phase": "generation",
            "address": page * 4096 + 8 * random.randrange(64), "address_page": page, 
            "op_type": random.choice(["load", "load", "store"]), "symbol": symbol, "dso": "/lib/x.so",
            "region_type": "unknown", "region_id": 0, "access_latency_ns": 30, "cache_level": "L2",
            "numa_node": 0, "cpu_id": i % 4, "thread_id": 77,
            "token_index": None, "context_tokens": None}
labeller = TraceLabeller()
trace = pd.DataFrame(list(labeller.label(rows())))
a = compute_all(trace)
out = Path(sys.argv[1])
RunExporter(out / "run").export(trace=trace, region_map=labeller.region_map(),
    kv_lifecycle=labeller.kv_lifecycle(), analysis=a, metadata={"machine_id": "box"}, run_id="r1", figures=False)
build_metrics_table(a).to_csv(out / "want.csv", index=False)
`

// TestReadsRunsOfMRMTrace reads a directory that mrm-trace's own writers made, and compares the metrics with those
// that it computed.
func TestReadsRunsOfMRMTrace(t *testing.T) {
	python := testenv.NeedPython(t, "mrm_trace.analyser", "pandas")
	dir := t.TempDir()
	if text, err := exec.Command(python, "-c", mrmTraceWrites, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	run := filepath.Join(dir, "run")
	llamatap(t, "mrm", "analyze", run).good(t)
	text, err := os.ReadFile(filepath.Join(run, "derived", "mrm", "metrics.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if r := llamatap(t, "memory", run, "--format", "csv").good(t); r.stdout != string(text) {
		t.Errorf("memory says %s, mrm analyze %s", r.stdout, text)
	}
	want, err := os.ReadFile(filepath.Join(dir, "want.csv"))
	if err != nil {
		t.Fatal(err)
	}
	got, theirs := byType(t, string(text)), byType(t, string(want))
	if len(got) != 3 || len(theirs) != 3 {
		t.Fatalf("%s\nwant\n%s", text, want)
	}
	for kind, row := range theirs {
		for ours, name := range map[string]string{
			"mrm_trace_retention_p50_s": "retention_p50_s", "mrm_trace_retention_p99_s": "retention_p99_s",
			"mrm_trace_write_once_ratio": "write_once_ratio_mean",
			"mrm_trace_unique_pages":     "unique_pages_total",
		} {
			a, errA := strconv.ParseFloat(got[kind][ours], 64)
			b, errB := strconv.ParseFloat(row[name], 64)
			if errA != nil || errB != nil || math.Abs(a-b) > 1e-6 {
				t.Errorf("%s, %s: %q, mrm-trace has %q", kind, name, got[kind][ours], row[name])
			}
		}
		if got[kind]["mrm_trace_suitability"] != row["suitability"] {
			t.Errorf("%s: %s, mrm-trace has %s", kind, got[kind]["mrm_trace_suitability"], row["suitability"])
		}
	}
}

// byType are the cells of a CSV file by their type of region and column.
func byType(t *testing.T, text string) map[string]map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	all := map[string]map[string]string{}
	for _, row := range rows[1:] {
		all[row[0]] = map[string]string{}
		for i, name := range rows[0] {
			all[row[0]][name] = row[i]
		}
	}
	return all
}
