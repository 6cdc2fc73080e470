package memory

import (
	"errors"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// foreignNames are the columns of a trace.parquet that mrm-trace wrote, by what they stand for. Its rows are
// samples of addresses without sizes.
var foreignNames = map[int]string{
	memtrace.TraceTime: "timestamp_ns", memtrace.TracePhase: "phase", memtrace.TraceOp: "op_type",
	memtrace.TraceAddr: "address", memtrace.TraceRegion: "region_id",
	memtrace.TraceRegionType: "region_type", memtrace.TraceSymbol: "symbol", memtrace.TraceToken: "token_index",
	memtrace.TraceTID: "thread_id",
	memtrace.TraceCPU: "cpu_id",
}

// foreign reports whether mrm-trace wrote a table.
func foreign(t *table.Table) bool { return has(t, "op_type") && has(t, "address") }

// Foreign reports whether mrm-trace wrote the trace of a directory.
func Foreign(dir string) (bool, error) {
	t, err := openTrace(dir)
	if errors.Is(err, ErrNoTable) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer t.Close()
	return foreign(t), nil
}

// nameOf is what a column is called; "": the table has none that stands for it.
func nameOf(column int, isForeign bool) string {
	if isForeign {
		return foreignNames[column]
	}
	return memtrace.TraceColumns()[column].Name
}

func foreignOp(s string) (memtrace.AccessOp, error) {
	switch s {
	case "load":
		return memtrace.OpRead, nil
	case "store":
		return memtrace.OpWrite, nil
	}
	return memtrace.ParseAccessOp(s)
}

func foreignType(s string) (memtrace.RegionType, error) {
	if s == "unknown" || s == "" {
		return memtrace.Other, nil
	}
	return memtrace.ParseRegionType(s)
}

// sampled is a column of collectors for rows of a foreign table.
func (r *rows) sampled() *table.Vector {
	if len(r.perf.Words) == 0 {
		r.perf.Words = []string{memtrace.CollectorPerf.String()}
	}
	for len(r.perf.Codes) < r.n {
		r.perf.Codes = append(r.perf.Codes, 0)
	}
	r.perf.Codes = r.perf.Codes[:r.n]
	return &r.perf
}
