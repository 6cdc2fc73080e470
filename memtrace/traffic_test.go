package memtrace

import "testing"

// TestTraffic: bytes over time and by step are all that was moved, however long the trace is.
func TestTraffic(t *testing.T) {
	var w Traffic
	var read, written uint64
	const steps = MaxSteps + 10
	for i := range int64(steps) {
		for _, a := range []Touch{
			{Op: OpRead, Type: Weight, Region: 1, Size: 100},
			{Op: OpRead, Type: Weight, Region: 2, Size: uint64(i % 3)},
			{Op: OpWrite, Type: KVCache, Region: 3, Size: 7},
			{Op: OpFree, Type: KVCache, Region: 3, Size: 7},
		} {
			a.NS = 1e9 + i*5e6
			token := i
			if a.Region == 3 {
				token = -1
			}
			w.Add(&a, i, token)
			switch a.Op {
			case OpRead:
				read += a.Size
			case OpWrite:
				written += a.Size
			}
		}
	}
	w.Finish()
	w.Finish()
	var all Moved
	for i := range w.Bins {
		all.Add(&w.Bins[i])
	}
	if r, _ := all.Of(Weight); r != read || all.Written[KVCache] != written || len(w.Bins) > maxBins ||
		len(w.Bins) <= maxBins/2 || w.First != 1e9 {
		t.Errorf("%d bins of %d ns: %d read, %d written; want %d and %d", len(w.Bins), w.WidthNS, all.Read[Weight],
			all.Written[KVCache], read, written)
	}
	if w.WidthNS*int64(len(w.Bins)) < steps*5e6 || w.WidthNS%firstWidth != 0 {
		t.Errorf("%d bins of %d ns", len(w.Bins), w.WidthNS)
	}
	if s := w.Steps[5]; len(w.Steps) != MaxSteps || w.Uncounted != 10 || s.Graph != 5 || s.Token != 5 ||
		s.Read[Weight] != 102 || s.Written[KVCache] != 7 || s.NS != 1e9+25e6 {
		t.Errorf("%d steps, %d more; %+v", len(w.Steps), w.Uncounted, s)
	}
	if one, two := w.PerStep(1), w.PerStep(2); one.Count != steps || one.Min != 100 || one.Max != 100 || two.Max != 2 ||
		two.Min != 0 || w.PerStep(99).Count != 0 {
		t.Errorf("%+v, %+v", one, two)
	}
}

// TestSteps: a graph's bytes are one step whichever tokens its rows name, and those of no graph are none.
func TestSteps(t *testing.T) {
	var w Traffic
	for i, token := range []int64{3, 5, -1, 4} {
		w.Add(&Touch{NS: int64(i), Type: Activation, Op: OpRead, Size: 1}, 8, token)
	}
	w.Add(&Touch{NS: 9, Type: Activation, Op: OpRead, Size: 1}, -1, -1)
	w.Finish()
	if len(w.Steps) != 1 || w.Steps[0].Token != 5 || w.Steps[0].Read[Activation] != 4 ||
		w.Bins[0].Read[Activation] != 5 {
		t.Errorf("%+v", w.Steps)
	}
}

// TestWindowsAreNoPeaks: what is added up over a time is spread over no less.
func TestWindowsAreNoPeaks(t *testing.T) {
	var w Traffic
	w.Add(&Touch{NS: 0, Type: Weight, Op: OpRead, Size: 1}, -1, -1)
	for at := range int64(5) {
		w.Add(&Touch{NS: at * second / 10, Type: Weight, Op: OpRead, Size: 100, Count: 10, WindowNS: second / 10}, -1,
			-1)
	}
	w.Finish()
	if w.WidthNS < second/10 || w.WidthNS >= second/5 || len(w.Bins) > 5 || len(w.Steps) != 0 {
		t.Errorf("%d bins of %d ns, %d steps", len(w.Bins), w.WidthNS, len(w.Steps))
	}
}
