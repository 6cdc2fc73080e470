//go:build linux

package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

const ownClasses = `version: 1
sources: {here: {text: this test, year: 2026}}
classes:
  - {id: short, retention_s: {value: RETENTION, source: here}, endurance_writes: {value: 1.0e+9, source: here},
      read_pj_per_bit: {value: 2, source: here}, write_pj_per_bit: {value: 20, source: here}}
`

// whatIfAgain computes with pandas, out of the tables of a run, what the cache would ask of a memory of a short
// retention.
const whatIfAgain = `
import sys, json, numpy as np, pandas as pd
run, tau = sys.argv[1], float(sys.argv[2])
regions, lives = (pd.read_parquet(f"{run}/{name}.parquet", dtype_backend="numpy_nullable")
    for name in ("region_map", "kv_block_lifecycle"))
for table in (regions, lives):
    for name in table.columns:
        if name.endswith("_ns"):
            table[name] = pd.array([pd.NA if pd.isna(v) else v.value for v in table[name]], dtype="Int64")
times = pd.concat([regions[c] for c in ("first_write_ns", "last_write_ns", "first_read_ns", "last_read_ns")] +
    [lives[c] for c in ("alloc_ns", "last_write_ns", "last_read_ns", "evict_ns")]).dropna().astype("int64")
T = (times.max() - times.min()) / 1e9
written = lives.first_write_ns.where(lives.n_writes <= lives.cells, lives.last_write_ns)
needed = ((lives.last_read_ns - written) / 1e9).fillna(0).clip(lower=0).to_numpy("float64")
size = (lives.cells * lives.cell_bytes).to_numpy("float64")
lives_censored = lives.censored.to_numpy("bool")
phases = [p for name, p in json.load(open(f"{run}/metadata.json"))["phases"].items() if name != "setup"]
delta = sum(p["ns"] for p in phases) / sum(p["graphs"] for p in phases) / 1e9
n, most = ((np.ceil((needed + d).clip(min=0) / tau) - 1).clip(min=0) for d in (-delta, delta))
low = (n * size).sum() * 86400 / T
high = ((most * size)[~lives_censored]).sum() * 86400 / T + size[lives_censored].sum() * (np.ceil(86400 / tau) - 1)
cache = regions[(regions.region_type == "kv_cache") & (regions.n_reads + regions.n_writes > 0)]
w = pd.read_csv(f"{run}/derived/mrm/whatif.csv")
row = w[(w.region_type == "kv_cache") & w.region_id.isna()].iloc[0]
def near(name, is_, want, rel=1e-6):
    assert abs(is_ - want) <= rel * abs(want), (name, is_, want)
# Needed times are in buckets that are up to 1/64 wide.
near("low", row.bytes_refreshed_per_day_low, low, 0.02 + 1 / max(n.mean(), 1))
near("high", row.bytes_refreshed_per_day_high, high, 0.02 + 1 / max(n.mean(), 1))
near("read", row.bytes_read_per_day, cache.bytes_read.sum() * 86400 / T)
near("written", row.bytes_written_per_day, cache.bytes_written.sum() * 86400 / T)
near("energy", row.total_j_low,
    8e-12 * (2 * row.bytes_read_per_day + 20 * row.bytes_written_per_day + 22 * row.bytes_refreshed_per_day_low))
near("writes", row.writes_per_cell_per_day_low,
    (row.bytes_written_per_day + row.bytes_refreshed_per_day_low) / cache.size_bytes.sum())
near("years", row.lifetime_years_high, 1e9 / row.writes_per_cell_per_day_low / 365.25)
parts = w[(w.region_type == "kv_cache") & w.region_id.notna()]
near("sum", parts.bytes_refreshed_per_day_high.sum(), row.bytes_refreshed_per_day_high)
weights = w[(w.region_type == "weight") & w.region_id.isna()].iloc[0]
assert weights.bytes_written_per_day == 0 and \
    weights.regions == len(parts.region_id) * 0 + (regions[regions.region_type == "weight"].n_reads > 0).sum()
print("ok", n.mean(), low, high)
`

// TestWhatIfAgain records a run in which cells are needed for different times, some of which end, and lets pandas
// compute again what follows.
func TestWhatIfAgain(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "pandas", "numpy")
	run := llamatap(t, "run", "--tap-regions", "--tap-kv", "--tap-kv-block", "1", "-p", prompt, "-n", "40",
		"-t", "1").good(t).dirs[0]
	const retention = "0.0005"
	classes := filepath.Join(t.TempDir(), "classes.yaml")
	if err := os.WriteFile(classes, []byte(strings.Replace(ownClasses, "RETENTION", retention, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	llamatap(t, "mrm", "analyze", run, "--devices", classes, "--classes", "short", "--no-figures").good(t)
	if out, err := exec.Command(python, "-c", whatIfAgain, run, retention).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAnalyzeTrace analyses a run with a ledger: what metrics say of weights is what the map does, and every figure
// is drawn.
func TestAnalyzeTrace(t *testing.T) {
	run := llamatap(t, "run", "--tap-ledger", "rows", "--tap-kv", "-p", prompt, "-n", "6", "-t", "1").good(t).dirs[0]
	said := llamatap(t, "mrm", "analyze", run, "--figures", "svg").good(t)
	if !strings.Contains(said.stderr, "computed from the trace of accesses") ||
		!strings.Contains(said.stdout, "weight") {
		t.Errorf("%s%s", said.stdout, said.stderr)
	}
	drawn, _ := filepath.Glob(filepath.Join(run, "derived", "mrm", "*.svg"))
	if len(drawn) != 7 {
		t.Errorf("%d figures: %q", len(drawn), drawn)
	}
	llamatap(t, "verify", run).good(t)
}
