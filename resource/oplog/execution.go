package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// Hot path: no allocation per execution in steady state.

// execution is one that is recorded, with its times and work.
type execution struct {
	*ggmlhooks.Execution
	level resource.Level
	plan  *plan
	done  int64 // when its scheduler was synchronised after it; 0 = not known
	timing
	workload
}

// atOnce is a synchronisation that waited for nothing.
const atOnce = 10_000

// begin makes it that of an execution, in its old memory.
func (x *execution) begin(of *ggmlhooks.Execution, p *plan, level resource.Level) {
	x.Execution, x.level, x.plan, x.done = of, level, p, of.DoneNS
	// A device behind a network may continue though it was synchronised: with some of ggml's versions that waits for
	// nothing. It is done when its results were fetched.
	if p.remote && len(x.Outputs) == 0 && of.SyncNS < atOnce {
		x.done = 0
	}
	x.workload.begin(x)
	x.timing.begin(of, p, level)
}

// duration is how long ggml computed; false where that is not known.
func (x *execution) duration() (int64, bool) {
	end, begin := x.End.MonoNS, x.End.BeginNS
	if x.End.Async {
		end = x.done
	}
	if begin == 0 || end < begin {
		return 0, false
	}
	return end - begin, true
}

// finish is when it was done, as far as that is known.
func (x *execution) finish() int64 { return max(x.End.MonoNS, x.UntilNS) }

// timeSource is what its duration is the time of.
func (x *execution) timeSource() resource.TimeSource {
	if x.End.Async && x.done != 0 {
		return resource.TimeSync
	}
	return resource.TimeGraph
}

// rowPhases counts the rows by their own phase: a batch may have rows of both.
func (x *execution) rowPhases() (prefill, decode int64) {
	for i := range x.Rows {
		if x.Rows[i].Phase == ggmlhooks.PhaseDecode {
			decode++
		}
	}
	return int64(len(x.Rows)) - decode, decode
}

// rowAt is the token row that row i of n of a tensor stands for; nil where that is not known.
func (x *execution) rowAt(kind ggmlhooks.RowKind, i, n int) *ggmlhooks.Row {
	if kind == ggmlhooks.RowsOutputs && n == len(x.Outputs) {
		i = int(x.Outputs[i])
	} else if n != len(x.Rows) {
		return nil
	}
	if i < 0 || i >= len(x.Rows) {
		return nil
	}
	return &x.Rows[i]
}

// routed is the data of a captured tensor of 4-byte elements, nil where it was not captured whole.
func (x *execution) routed(node int) []byte {
	for i := range x.Routing {
		if c := &x.Routing[i]; c.Node == node && int64(len(c.Data)) == 4*c.NE[0]*c.NE[1]*c.NE[2]*c.NE[3] {
			return c.Data
		}
	}
	return nil
}

// seq is a row's first sequence; false where it is not known.
func seq(row *ggmlhooks.Row) (int32, bool) {
	if len(row.Seqs) == 0 {
		return 0, false
	}
	return row.Seqs[0], true
}
