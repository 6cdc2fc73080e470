package memory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// layersOfTest is how many layers the model of long traces has: 6 weights, 2 caches and 12 activations each.
const layersOfTest = 32

// stepTemplate is a row of an execution of the model of long traces: cells of a cache in a row grow with the execution.
type stepTemplate struct {
	op                     memtrace.AccessOp
	kind                   memtrace.RegionType
	region, buffer, offset int64
	size                   int64
	cell                   int64 // offset grows by so much per execution
	cells                  int64 // size does
}

// stepOf is what an execution of the model of long traces does.
func stepOf() (all []stepTemplate) {
	at := int64(0)
	for layer := range int64(layersOfTest) {
		for k := range int64(12) {
			if k%2 == 0 {
				id := layer*6 + k/2
				all = append(all, stepTemplate{op: read, kind: weight, region: id, buffer: 1, offset: id << 22,
					size: 4 << 20})
			}
			all = append(all, stepTemplate{op: read, kind: activation, region: 2000 + layer*12 + k, buffer: 3,
				offset: at, size: 8192})
			if k == 4 {
				for part := range int64(2) {
					id := 1000 + 2*layer + part
					base := id << 22
					all = append(all, stepTemplate{op: write, kind: kv, region: id, buffer: 2, offset: base, size: 1024,
						cell: 1024},
						stepTemplate{op: read, kind: kv, region: id, buffer: 2, offset: base, size: 1024, cells: 1024})
				}
			}
			at = (at + 8192*(1+k%3)) % (1 << 20)
			all = append(all, stepTemplate{op: write, kind: activation, region: 2000 + layer*12 + k + 1, buffer: 3,
				offset: at, size: 8192})
		}
	}
	return all
}

// longTrace writes a trace of at least so many rows into a run directory, with cells that are used again after 2048
// executions, and says how many rows it has.
func longTrace(t testing.TB, dir string, rows int64) int64 {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, rundir.TraceName))
	if err != nil {
		t.Fatal(err)
	}
	s := traceSchema(table.Version)
	for _, c := range []int{memtrace.TraceTime, memtrace.TraceGraphSeq, memtrace.TraceToken} {
		s.Columns[c].Encoding = table.Delta
	}
	p, err := table.NewParquet(f, s)
	if err != nil {
		t.Fatal(err)
	}
	step := stepOf()
	b := table.NewBatch(s)
	done := int64(0)
	for i := int64(0); done < rows; i++ {
		b.Reset()
		putStep(b, step, i)
		if err := p.Append(b); err != nil {
			t.Fatal(err)
		}
		done += int64(len(step))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return done
}

func putStep(b *table.Batch, step []stepTemplate, number int64) {
	n := len(step)
	cell := number % 2048
	var ops, kinds, regions, buffers, offsets, sizes []int64
	for k := range step {
		r := &step[k]
		ops = append(ops, b.Code(memtrace.TraceOp, r.op.String()))
		kinds = append(kinds, b.Code(memtrace.TraceRegionType, r.kind.String()))
		regions, buffers = append(regions, r.region), append(buffers, r.buffer)
		offsets, sizes = append(offsets, r.offset+r.cell*cell), append(sizes, r.size+r.cells*cell)
	}
	b.Fill(memtrace.TraceTime, testBegin+number*25e6, n)
	b.Extend(memtrace.TraceOp, ops, nil)
	b.Extend(memtrace.TraceRegionType, kinds, nil)
	b.Extend(memtrace.TraceRegion, regions, nil)
	b.Extend(memtrace.TraceBuffer, buffers, nil)
	b.Extend(memtrace.TraceOffset, offsets, nil)
	b.Extend(memtrace.TraceSize, sizes, nil)
	b.Fill(memtrace.TraceCollector, b.Code(memtrace.TraceCollector, "graph"), n)
	b.Fill(memtrace.TracePhase, b.Code(memtrace.TracePhase, "generation"), n)
	b.Fill(memtrace.TraceTimeSource, b.Code(memtrace.TraceTimeSource, "graph"), n)
	b.Fill(memtrace.TraceGraphSeq, number, n)
	b.Fill(memtrace.TraceToken, number, n)
	b.Fill(memtrace.TraceCount, 1, n)
	b.Fill(memtrace.TracePieces, 1, n)
	b.Fill(memtrace.TraceFlags, 0, n)
	if err := b.EndRows(n); err != nil {
		panic(err)
	}
}

// BenchmarkAnalyze reads a trace of 8 million rows.
func BenchmarkAnalyze(b *testing.B) {
	dir := b.TempDir()
	rows := longTrace(b, dir, 8_000_000)
	b.ReportAllocs()
	for b.Loop() {
		analyze(b, dir, Options{})
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
