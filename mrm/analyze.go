package mrm

import (
	"context"
	"iter"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
)

// metricsName is the file of the summary per region type in a run directory.
const metricsName = "metrics.csv"

// Labeller says which region an address or a place in a buffer belongs to, and when: mrm-trace's TraceLabeller. It
// follows buffers, tensors and mappings as they come and go.
type Labeller = memtrace.RegionMap

// NewLabeller makes an empty labeller.
func NewLabeller() *Labeller { return memtrace.NewRegionMap() }

// Label says of each access where it went, one after the other: mrm-trace's label, which is a generator too. What
// was added to the labeller until then counts, so that buffers and mappings may be added between two accesses.
func Label(l *Labeller, accesses iter.Seq[memtrace.Access]) iter.Seq2[memtrace.Access, memtrace.Hit] {
	return func(yield func(memtrace.Access, memtrace.Hit) bool) {
		for a := range accesses {
			if !yield(a, l.Address(a.Addr, a.TimeNS)) {
				return
			}
		}
	}
}

// ComputeAll computes all metrics of a run directory, in memory that its accesses do not bound: mrm-trace's
// compute_all. Windows and thresholds are those of the configuration; the zero value has mrm-trace's. A run without
// accesses is [memory.ErrNoTrace].
func ComputeAll(ctx context.Context, dir string, a Analysis) (*memory.Report, error) {
	o := memory.Options{}
	for _, s := range a.WindowsS {
		o.Windows = append(o.Windows, time.Duration(s*float64(time.Second)))
	}
	if t := a.Thresholds; t != (Thresholds{}) {
		o.Thresholds = memtrace.Thresholds{
			HighWriteOnce: t.HighWriteOnce, HighP99NS: int64(t.HighRetentionS * 1e9),
			MediumWriteOnce: t.MediumWriteOnce, MediumP50NS: int64(t.MediumRetentionS * 1e9),
		}
	}
	return memory.Analyze(ctx, dir, o)
}
