package memtrace

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

const second = int64(1e9)

// TestKnownAnswers: weights that are written once and read for 30 s are retained for 30 s exactly, and suit; what
// is written anew each second does not.
func TestKnownAnswers(t *testing.T) {
	m := NewMeter(second, 10*second)
	for at := range int64(31) {
		for piece := range uint64(4) {
			op := OpRead
			if at == 0 {
				op = OpWrite
			}
			m.Add(&Touch{NS: at * second, Op: op, Type: Weight, Region: 1, Offset: 100 * piece, Size: 100})
		}
		m.Add(&Touch{NS: at * second, Op: OpWrite, Type: Activation, Region: 2, Buffer: 7, Size: 50})
		m.Add(&Touch{NS: at*second + 1000, Op: OpRead, Type: Activation, Region: 2, Buffer: 7, Size: 50})
	}
	m.Add(&Touch{NS: 30*second + 2000, Op: OpFree, Type: Weight, Region: 1, Size: 400})
	m.Finish(31 * second)
	w, a := m.Type(Weight), m.Type(Activation)
	for _, p := range []float64{0.5, 0.9, 0.99, 1} {
		if v, ok := w.Retention.Quantile(p); !ok || v != 30*second {
			t.Errorf("retention p%v is %d ns", 100*p, v)
		}
		if v, ok := w.Retention.KaplanMeier(p); !ok || v != 30*second {
			t.Errorf("retention p%v is %d ns by Kaplan and Meier", 100*p, v)
		}
	}
	if label, ok := w.Label(Thresholds{}); !ok || label != HighMRM {
		t.Errorf("weights are %v", label)
	}
	if label, _ := a.Label(Thresholds{}); label != LowMRM {
		t.Errorf("activations are %v", label)
	}
	if once, _ := w.WriteOnce(); once != 1 || w.Written != 400 || a.WrittenOnce != 0 || a.Written != 50 ||
		a.Writes != 31 {
		t.Errorf("%+v", w)
	}
	if share, _ := a.Retention.CensoredShare(); share != 1.0/31 || w.Retention.Censored != 0 ||
		a.Retention.Count != 31*50 {
		t.Errorf("%v of activations are censored", share)
	}
	if hz, _ := w.ReadFrequency(); math.Abs(hz-30/30.000002) > 1e-12 { // each byte 30 times in 30.000002 s
		t.Errorf("weights are read at %v Hz", hz)
	}
	if v, _ := w.IAIs.Quantile(0.5); v != second || w.IAI.Min != second || w.IAI.Max != second {
		t.Errorf("weights are touched each %d ns", v)
	}
	if v, _ := a.IAIs.Quantile(0.5); v != 1000 || a.IAI.Max != second-1000 {
		t.Errorf("activations are touched each %d ns", v)
	}
	if mean, most := w.WorkingSet(0); mean != 400*31.0/32 || most != 400 {
		t.Errorf("working set in a second: %v, at most %d", mean, most)
	}
	if _, most := w.WorkingSet(1); most != 400 {
		t.Errorf("working set in ten seconds: at most %d", most)
	}
	if v, _ := w.Reuses.Quantile(1); v != 350 || w.Reuse.Min != 350 {
		t.Errorf("reuse over %d bytes", v)
	}
	// Each access is 2 lines; of 248 the first follows nothing, and 30 times the round begins anew.
	if score, _ := w.Locality(); score != 1-30.0/247 {
		t.Errorf("locality %v", score)
	}
	if v, _ := w.Strides.Quantile(1); v != 400 || w.Strides.Count != 123 || w.Strides.Sum != 30*400 {
		t.Errorf("strides %+v", w.Strides.Tally)
	}
	if m.Region(1).Reads != w.Reads || m.Region(7) != nil || m.Type(Code) != nil || w.Regions != 1 {
		t.Error("regions")
	}
}

// TestLoadedWeights: a region of which no touch shows when it was written was written when its place says, and a
// write that is reported late counts from when it was.
func TestLoadedWeights(t *testing.T) {
	for _, late := range []bool{false, true} {
		m := NewMeter(100 * second)
		m.Add(&Touch{NS: 5 * second, Op: OpRead, Type: Other, Region: 9, Size: 1})
		if late {
			m.Add(&Touch{NS: second, Op: OpWrite, Type: Weight, Region: 1, Offset: 64, Size: 1000})
		} else {
			m.Declare(1, Weight, Place{Offset: 64, Bytes: 1000, Written: second})
		}
		m.Add(&Touch{NS: 6 * second, Op: OpRead, Type: Weight, Region: 1, Offset: 64, Size: 1000})
		m.Add(&Touch{NS: 31 * second, Op: OpRead, Type: Weight, Region: 1, Offset: 64, Size: 1000})
		m.Finish(40 * second)
		w := m.Type(Weight)
		if v, _ := w.Retention.Quantile(0.99); v != 30*second || w.Retention.Count != 1000 ||
			w.Retention.Censored != 1000 {
			t.Errorf("late %v: %d ns, %+v", late, v, w.Retention.Tally)
		}
		if hz, _ := w.ReadFrequency(); math.Abs(hz-2/39.0) > 1e-12 || w.WrittenOnce != 1000 {
			t.Errorf("late %v: %v Hz, %d written once", late, hz, w.WrittenOnce)
		}
		if _, most := w.WorkingSet(0); most != 1000 {
			t.Errorf("late %v: %d bytes in a window", late, most)
		}
	}
}

// TestColumns: values of a cache that lie transposed are followed by column. A cell that is written, read with
// others and written again has the retention of a cell that lies in one piece.
func TestColumns(t *testing.T) {
	const cells, dims, size = 1024, 64, 2
	run := func(transposed bool) *Meter {
		m := NewMeter(second)
		m.Declare(1, KVCache, Place{Offset: 4096, Bytes: cells * dims * size})
		touch := func(ns int64, op AccessOp, first, n uint64) {
			a := &Touch{NS: ns, Op: op, Type: KVCache, Region: 1, Buffer: 3, Offset: 4096 + first*dims*size,
				Size: n * dims * size}
			if transposed {
				a.Offset, a.Pieces, a.Stride = 4096+first*size, dims, cells*size
			}
			m.Add(a)
		}
		for at := range int64(300) {
			touch(at*second, OpWrite, uint64(at%200), 1)
			touch(at*second, OpRead, 0, uint64(min(at+1, 200)))
		}
		m.Finish(300 * second)
		return m
	}
	a, b := run(false).Type(KVCache), run(true).Type(KVCache)
	if a.Hulls != 0 || b.Hulls != 0 || a.Retention.Sum != b.Retention.Sum || a.Retention.Count != b.Retention.Count ||
		a.Written != b.Written || a.WrittenOnce != b.WrittenOnce ||
		a.IAI != b.IAI || a.Reuse != b.Reuse || a.windows[0] != b.windows[0] || math.Abs(a.LiveNS-b.LiveNS) > 1 {
		t.Errorf("%+v\n%+v", a.Metrics, b.Metrics)
	}
	// 100 cells each of 99 s down to 0, of 199 s down to 100 s, and of 199 s
	if v, _ := a.Retention.Quantile(1.0 / 3); v != 99*second || a.Retention.Max != 199*second {
		t.Errorf("a third of cells is kept for %d ns, the longest %d", v, a.Retention.Max)
	}
	if once, _ := a.WriteOnce(); once != 0.5 {
		t.Errorf("%v are written once", once)
	}
}

// TestStreams: a cache of several streams, each in columns, is one whose streams lie in pieces, and cells that are
// evicted are found in either.
func TestStreams(t *testing.T) {
	const cells, dims, size, stream = 64, 32, 2, 64 * 32 * 2
	run := func(transposed bool) *Meter {
		m := NewMeter(second)
		m.Declare(1, KVCache, Place{Offset: 256, Bytes: 3 * stream})
		touch := func(ns int64, op AccessOp, number, first, n uint64) {
			a := &Touch{NS: ns, Op: op, Type: KVCache, Region: 1, Buffer: 3,
				Offset: 256 + number*stream + first*dims*size, Size: n * dims * size}
			if transposed {
				a.Offset, a.Pieces, a.Stride = 256+number*stream+first*size, dims, cells*size
			}
			m.Add(a)
		}
		// cleared as a whole
		m.Add(&Touch{NS: 0, Op: OpWrite, Type: KVCache, Region: 1, Buffer: 3, Offset: 256, Size: 3 * stream})
		for at := range int64(40) {
			number := uint64(at % 3)
			touch(at*second, OpWrite, number, uint64(at), 1)
			touch(at*second, OpRead, number, 0, uint64(at+1))
		}
		if !m.EndCells(1, cells+2, cells+10, dims*size, 41*second) ||
			m.EndCells(1, cells-1, cells-1, dims*size, 41*second) {
			t.Errorf("transposed %v: evicted cells", transposed)
		}
		if transposed == m.EndCells(1, cells-2, cells+2, dims*size, 41*second) { // of two streams, which lie apart
			t.Errorf("transposed %v: cells of two streams", transposed)
		}
		m.Finish(50 * second)
		return m
	}
	a, b := run(false).Type(KVCache), run(true).Type(KVCache)
	if a.Hulls+b.Hulls != 0 || a.Reads != b.Reads || a.Reuse != b.Reuse || a.IAI != b.IAI ||
		a.windows[0] != b.windows[0] || a.WrittenOnce != b.WrittenOnce || a.Written != b.Written {
		t.Errorf("%+v\n%+v", a.Metrics, b.Metrics)
	}
	// the cells of two streams
	ended := a.Retention.Count - a.Retention.Censored - (b.Retention.Count - b.Retention.Censored)
	if ended != 4*dims*size {
		t.Errorf("%+v, %d censored\n%+v, %d censored", a.Retention.Tally, a.Retention.Censored, b.Retention.Tally,
			b.Retention.Censored)
	}
}

// TestInputs: what is read from memory that another one wrote was written by somebody who is not seen.
func TestInputs(t *testing.T) {
	m := NewMeter()
	for at := range int64(3) {
		m.Add(&Touch{NS: 10 * at, Op: OpRead, Type: Activation, Region: 1, Buffer: 5, Size: 64}) // an input
		m.Add(&Touch{NS: 10*at + 1, Op: OpWrite, Type: Activation, Region: 2, Buffer: 5, Size: 64})
		m.Add(&Touch{NS: 10*at + 4, Op: OpRead, Type: Activation, Region: 2, Buffer: 5, Size: 64})
	}
	m.Add(&Touch{NS: 30, Op: OpFree, Type: ComputeBuffer, Region: -1, Buffer: 5, Size: 1 << 20})
	m.Finish(30)
	one, two := m.Region(1), m.Region(2)
	if one.Retention.Count != 0 || two.Retention.Count != 3*64 || two.Retention.Min != 3 || two.Retention.Max != 3 ||
		two.Retention.Censored != 0 {
		t.Errorf("%+v\n%+v", one, two)
	}
	if one.LiveNS != 64*(1+1+1) || two.LiveNS != 64*(9+9+9) {
		t.Errorf("live %v and %v", one.LiveNS, two.LiveNS)
	}
}

// TestWindows: of what is reported as sums over a time, only the sums are known, unless they are of whole regions.
func TestWindows(t *testing.T) {
	m := NewMeter(second)
	m.Declare(1, Weight, Place{Bytes: 1000, Written: -second})
	m.Declare(2, KVCache, Place{Bytes: 1000})
	for at := range int64(5) {
		m.Add(&Touch{NS: at * second, Op: OpRead, Type: Weight, Region: 1, Size: 3000, Count: 3, WindowNS: second})
		m.Add(&Touch{NS: at * second, Op: OpWrite, Type: KVCache, Region: 2, Size: 30, Count: 3, WindowNS: second})
	}
	m.Finish(5 * second)
	w, kv := m.Type(Weight), m.Type(KVCache)
	if v, _ := w.Retention.Quantile(0.5); w.Reads != 15 || w.BytesRead != 15000 || w.Coarse != 15 || v != 5*second {
		t.Errorf("%+v: %d ns", w.Metrics, v)
	}
	if _, ok := kv.WriteOnce(); ok || kv.Writes != 15 || kv.BytesWritten != 150 || kv.Retention.Count != 0 {
		t.Errorf("%+v", kv.Metrics)
	}
	if _, ok := kv.Label(Thresholds{}); ok {
		t.Error("a label out of sums")
	}
}

// TestLabels is mrm-trace's rule at its edges.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		once     float64
		p50, p99 int64
		want     Suitability
	}{
		{0.8, 0, 10 * second, HighMRM}, {0.79, 0, 10 * second, LowMRM}, {0.79, second, 10 * second, MediumMRM},
		{0.5, second, second, MediumMRM},
		{0.5, second - 1e8, second, LowMRM}, {0.49, 20 * second, 20 * second, LowMRM},
		{0.9, second, 9 * second, MediumMRM},
	} {
		m := &Metrics{Written: 100, WrittenOnce: int64(100*c.once + 0.5)}
		m.Retention.Add(c.p50, 90, false)
		m.Retention.Add(c.p99, 10, false)
		for _, label := range []func(Thresholds) (Suitability, bool){m.Label, m.LabelCensored} {
			if got, ok := label(DefaultThresholds()); !ok || got != c.want {
				t.Errorf("%+v: %v", c, got)
			}
		}
	}
	if _, ok := (&Metrics{}).Label(Thresholds{}); ok {
		t.Error("what was never written has a label")
	}
}

// TestShortRunsAreNotLow: memory that was not seen for long enough has no label but that the run was too short.
func TestShortRunsAreNotLow(t *testing.T) {
	for _, c := range []struct {
		once            int64
		ended, censored int64 // bytes that were kept for half a second
		want            Suitability
	}{
		{100, 0, 100, InsufficientMRM}, {50, 0, 100, InsufficientMRM}, {49, 0, 100, LowMRM}, {100, 100, 0, LowMRM},
		{50, 60, 40, LowMRM}, {100, 60, 40, InsufficientMRM},
	} {
		m := &Metrics{Written: 100, WrittenOnce: c.once}
		if c.ended > 0 {
			m.Retention.Add(second/2, c.ended, false)
		}
		if c.censored > 0 {
			m.Retention.Add(second/2, c.censored, true)
		}
		if got, ok := m.LabelCensored(Thresholds{}); !ok || got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if got, _ := m.Label(Thresholds{}); got != LowMRM {
			t.Errorf("%+v: %v by plain percentiles", c, got)
		}
	}
	m := &Metrics{Written: 100, WrittenOnce: 100}
	m.Retention.Add(2*second, 100, true)
	if got, _ := m.LabelCensored(Thresholds{}); got != MediumMRM { // at least
		t.Errorf("%v", got)
	}
}

// TestMeterIsBounded: ranges that are too many are widened, and it is said.
func TestMeterIsBounded(t *testing.T) {
	testenv.Once(t)
	m := NewMeter()
	m.Declare(1, Weight, Place{Bytes: 1 << 30})
	for i := range uint64(maxRuns * 3) {
		m.Add(&Touch{NS: int64(i), Op: OpRead, Type: Weight, Region: 1, Offset: i * 7919 % (1 << 24) * 64, Size: 32})
	}
	s := m.regions.order[0].space
	if n := s.touched.n + s.written.n; n > 5*maxRuns {
		t.Errorf("%d runs", n)
	}
	m.Finish(1 << 40)
	if w := m.Type(Weight); w.Grain < 64 || w.BytesRead != maxRuns*3*32 {
		t.Errorf("grain %d, %d bytes", w.Grain, w.BytesRead)
	}
	m = NewMeter(100)
	one := &Touch{Op: OpRead, Type: Activation, Region: 1, Buffer: 1, Size: 64}
	for i := range int64(200_000) {
		one.NS, one.Offset, one.Op = i, uint64(i%1000)*64, OpRead
		m.Add(one)
		one.Op = OpWrite
		m.Add(one)
	}
	if n := testing.AllocsPerRun(1000, func() { m.Add(one) }); n != 0 || len(m.recent.slots) > 2*minSlots {
		t.Errorf("%v allocations per touch, %d slots", n, len(m.recent.slots))
	}
}

// TestCountAndFollow: who counts touches in one goroutine and follows them in another one gets what one gets who
// adds them.
func TestCountAndFollow(t *testing.T) {
	touches := syntheticStep(40)
	touches = append(touches, Touch{Op: OpAlloc, Type: KVCache, Region: 5000, Buffer: 9, Size: 100},
		Touch{Op: OpWrite, Type: Other, Region: -1, Size: 10, Scattered: true})
	one, two := NewMeter(second), NewMeter(second)
	done := make(chan struct{})
	each := func(f func(*Touch)) {
		for i := range 20 * len(touches) {
			a := touches[i%len(touches)]
			a.NS = int64(i) * 1e6
			f(&a)
		}
	}
	go func() {
		defer close(done)
		each(two.Follow)
	}()
	each(two.Count)
	<-done
	each(one.Add)
	one.Finish(0)
	two.Finish(0)
	for _, kind := range RegionTypes() {
		if a, b := one.Type(kind), two.Type(kind); !reflect.DeepEqual(a, b) {
			t.Errorf("%v: %+v, want %+v", kind, b, a)
		}
	}
	for _, id := range one.Accessed() {
		if a, b := one.Region(id), two.Region(id); b == nil || !reflect.DeepEqual(a, b) {
			t.Errorf("region %d: %+v, want %+v", id, b, a)
		}
	}
}

func BenchmarkMeter(b *testing.B) {
	m := NewMeter(second/1000, second/10, second)
	touches := syntheticStep(300)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a := &touches[i%len(touches)]
		a.NS = int64(i/len(touches)) * 20e6
		m.Add(a)
	}
}

// syntheticStep is what a graph of so many nodes does: each reads a weight and what was computed before, and writes
// its result; each fifth reads a cache as well.
func syntheticStep(nodes int) (all []Touch) {
	r := rand.New(rand.NewPCG(1, 2))
	at := uint64(0)
	for i := range nodes {
		size := uint64(4096 << r.IntN(3))
		next := (at + size) % (1 << 20)
		all = append(all, Touch{Op: OpRead, Type: Weight, Region: i, Offset: uint64(i) << 20, Size: 1 << 20},
			Touch{Op: OpRead, Type: Activation, Region: 1000 + i, Buffer: 1, Offset: at, Size: size})
		if i%5 == 0 {
			all = append(all, Touch{Op: OpWrite, Type: KVCache, Region: 3000 + i, Buffer: 2,
				Offset: uint64(i)<<20 + 512, Size: 128},
				Touch{Op: OpRead, Type: KVCache, Region: 3000 + i, Buffer: 2, Offset: uint64(i) << 20, Size: 640})
		}
		all = append(all, Touch{Op: OpWrite, Type: Activation, Region: 1000 + i + 1, Buffer: 1, Offset: next,
			Size: size})
		at = next
	}
	return all
}
