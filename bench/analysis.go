package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/bench/trace"
	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
)

// analysisGoal is how many rows of a ledger an analysis takes per second, on two threads.
const analysisGoal = 10e6

// analyse computes all metrics of memory from a table of accesses, as llamatap memory does.
func analyse(ctx context.Context, file []byte) (trace.Rate, error) {
	dir, err := os.MkdirTemp("", "llamatap-bench-")
	if err != nil {
		return trace.Rate{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, memtrace.TraceName), file, 0o600); err != nil {
		return trace.Rate{}, err
	}
	began := time.Now()
	r, err := memory.Analyze(ctx, dir, memory.Options{})
	if err != nil {
		return trace.Rate{}, err
	}
	if r.Type(memtrace.Weight.String()) == nil || r.Type(memtrace.KVCache.String()) == nil {
		return trace.Rate{}, fmt.Errorf("the analysis found %d types of regions: it must find weights and caches", len(r.Types))
	}
	return trace.Rate{Rows: r.Rows, Bytes: int64(len(file)), Duration: time.Since(began)}, nil
}

// analysed is what was measured of it.
func analysed(name string, all []trace.Rate) Line {
	var rates, toGoal []float64
	for _, r := range all {
		rates, toGoal = append(rates, r.PerSecond()/1e6), append(toGoal, r.PerSecond()/analysisGoal)
	}
	i := MedianInterval(toGoal)
	return Line{
		Section: "table", Name: name + ": analysed (llamatap memory), two threads", Value: median(rates), Unit: "M rows/s", Limit: "10 M rows/s", Ratio: &i, Gate: "≥ 1",
		Verdict: i.AtLeast(1),
	}
}
