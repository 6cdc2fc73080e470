package memory

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestParts is a run of two executions of prefill and three of decode, and one before them that is set-up. Cells 0 and
// 1 of the cache are written in prefill, cell 2 in decode; cell 0 is evicted after the first execution of decode.
func TestParts(t *testing.T) {
	var rows []row
	at := func(graph int, step string, token int, r row) {
		rows = append(rows, r.with(memtrace.TraceTime, testBegin+int64(graph)*second, memtrace.TraceGraphSeq, graph,
			memtrace.TraceToken, token))
		if step != "" {
			r[memtrace.TraceStep] = step
		}
	}
	cell := func(op memtrace.AccessOp, n int) row { return access(0, op, kv, 2, 2, 10*n, 10) }
	w := func() row { return access(0, read, weight, 1, 1, 0, 100) }
	rows = append(rows, access(0, memtrace.OpWrite, weight, 1, 1, 0, 100).with(memtrace.TracePhase, "weight_load",
		memtrace.TraceFlags, int(memtrace.TraceLoaded)))
	at(1, "", 0, w().with(memtrace.TracePhase, "setup"))
	for graph := 2; graph <= 3; graph++ {
		at(graph, PartPrefill, graph-2, w())
		at(graph, PartPrefill, graph-2, cell(memtrace.OpWrite, graph-2))
		at(graph, PartPrefill, graph-2, cell(read, 0))
		at(graph, PartPrefill, graph-2, cell(read, 3).with(memtrace.TraceFlags, int(memtrace.TracePadded)))
	}
	for graph := 4; graph <= 6; graph++ {
		at(graph, PartDecode, graph-2, w())
		if graph == 4 {
			at(graph, PartDecode, graph-2, cell(memtrace.OpWrite, 2))
			at(graph, PartDecode, graph-2, cell(read, 0))
		}
		at(graph, PartDecode, graph-2, cell(read, 2))
	}
	dir := run(t, rows, 3)
	writeFile(t, dir, rundir.RegionsName, regionMap(t, []regionFixture{{id: 1, kind: "weight", name: "w", buffer: 1,
		bytes: 100}, {id: 2, kind: "kv_cache", name: "k", kv: "k", buffer: 2, bytes: 40}}))
	writeFile(t, dir, rundir.LivesName, lifeTable(t, []life{{kv: "k", first: 0, end: 1, bytes: 10, write: 2 * second,
		read: 4 * second, evict: 4*second + 1, reason: "seq_rm"}}))
	parts, err := Parts(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	type known struct {
		name                    string
		kind                    memtrace.RegionType
		executions, tokens      int64
		read, written, padded   uint64
		count, censored         int64 // of the retention
		least, most             int64 // of the retention, in executions
		seconds                 int64 // the most, in seconds
		mostInOne, writtenBytes int64
	}
	var got []known
	for _, p := range parts {
		r := &p.Steps.Retention
		_, most := p.Steps.WorkingSet(0)
		got = append(got, known{p.Name, p.Type, p.Executions, p.Tokens, p.Steps.BytesRead, p.Steps.BytesWritten,
			p.Padded,
			r.Count, r.Censored, r.Min, r.Max, p.Time.Retention.Max / second, most, p.Steps.Written})
	}
	want := []known{
		{PartAll, weight, 5, 5, 500, 0, 0, 100, 100, 5, 5, 4, 100, 100},
		// cell 0: from 2 to 4, evicted; cell 1: never read; cell 2: from 4 to 6
		{PartAll, kv, 5, 5, 60, 30, 20, 30, 20, 0, 2, 2, 20, 30},
		{PartPrefill, weight, 2, 2, 200, 0, 0, 100, 100, 2, 2, 1, 100, 100},
		{PartPrefill, kv, 2, 2, 20, 20, 20, 20, 20, 0, 1, 1, 20, 20},
		{PartDecode, weight, 3, 3, 300, 0, 0, 100, 100, 3, 3, 2, 100, 100},
		{PartDecode, kv, 3, 3, 40, 10, 0, 10, 10, 2, 2, 2, 20, 10},
	}
	slices.SortStableFunc(got, func(a, b known) int {
		order := []string{PartAll, PartPrefill, PartDecode}
		return slices.Index(order, a.name) - slices.Index(order, b.name)
	})
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no %+v in\n%+v", w, got)
		}
	}
}
