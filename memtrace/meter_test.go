package memtrace

import (
	"math/rand/v2"
	"testing"
)

const second = int64(1e9)

// TestKnownAnswers: weights that are written once and read for 30 s are retained for 30 s exactly, and suit; what is written anew each second
// does not.
func TestKnownAnswers(t *testing.T) {
	m := NewMeter(second, 10*second)
	for at := range int64(31) {
		for block := range int64(4) {
			op := OpRead
			if at == 0 {
				op = OpWrite
			}
			m.Add(&Touch{NS: at * second, Op: op, Type: Weight, Region: 1, Block: block, Bytes: 100, Offset: uint64(100 * block), Size: 100})
		}
		m.Add(&Touch{NS: at * second, Op: OpWrite, Type: Activation, Region: 2, Bytes: 50, Size: 50})
		m.Add(&Touch{NS: at*second + 1000, Op: OpRead, Type: Activation, Region: 2, Bytes: 50, Size: 50})
	}
	for block := range int64(4) {
		m.Add(&Touch{NS: 30*second + 2000, Op: OpFree, Type: Weight, Region: 1, Block: block})
	}
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
	if once, _ := w.WriteOnce(); once != 1 || w.Written != 4 || a.WrittenOnce != 0 || a.Writes != 31 {
		t.Errorf("%+v", w)
	}
	if share, _ := a.Retention.CensoredShare(); share != 1.0/31 || w.Retention.Censored != 0 {
		t.Errorf("%v of activations are censored", share)
	}
	if hz, _ := w.ReadFrequency(); hz < 0.9999 || hz > 1 { // 120 reads in 4 lives of 30.000002 s
		t.Errorf("weights are read at %v Hz", hz)
	}
	if v, _ := w.IAI.Quantile(0.5); v != second || w.IAI.Min != second || w.IAI.Max != second {
		t.Errorf("weights are touched each %d ns", v)
	}
	if v, _ := a.IAI.Quantile(0.5); v != 1000 {
		t.Errorf("activations are touched each %d ns", v)
	}
	if mean, most := w.WorkingSet(0); mean != 400*31.0/32 || most != 400 {
		t.Errorf("working set in a second: %v, at most %d", mean, most)
	}
	if _, most := w.WorkingSet(1); most != 400 {
		t.Errorf("working set in ten seconds: at most %d", most)
	}
	if v, _ := w.Reuse.Quantile(1); v != 350 || w.Reuse.Min != 350 {
		t.Errorf("reuse over %d bytes", v)
	}
	if score, _ := w.Locality(); score != 93.0/123 { // 3 of 4 in each round
		t.Errorf("locality %v", score)
	}
	if m.Region(1).Reads != w.Reads || m.Region(7) != nil || m.Type(Code) != nil {
		t.Error("regions")
	}
}

// TestLabels is mrm-trace's rule at its edges.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		once     float64
		p50, p99 int64
		want     Suitability
	}{
		{0.8, 0, 10 * second, HighMRM}, {0.79, 0, 10 * second, LowMRM}, {0.79, second, 10 * second, MediumMRM}, {0.5, second, second, MediumMRM},
		{0.5, second - 1e8, second, LowMRM}, {0.49, 20 * second, 20 * second, LowMRM}, {0.9, second, 9 * second, MediumMRM},
	} {
		m := newMetrics(0)
		m.Written, m.WrittenOnce = 100, int64(100*c.once+0.5)
		for i := range 100 {
			if v := c.p50; i < 90 {
				m.Retention.Add(v, false)
			} else {
				m.Retention.Add(c.p99, false)
			}
		}
		if got, ok := m.Label(DefaultThresholds()); !ok || got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if _, ok := newMetrics(0).Label(Thresholds{}); ok {
		t.Error("what was never written has a label")
	}
}

// TestMeterAgainstAllTouches compares a meter with what follows from all touches at once.
func TestMeterAgainstAllTouches(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := NewMeter(7, 0, 50)
		var all []Touch
		now := int64(1000)
		for range 400 {
			now += int64(r.IntN(5))
			a := Touch{NS: now, Type: RegionType(1 + r.IntN(2)), Block: int64(r.IntN(6)), Offset: uint64(r.IntN(3)), Size: uint64(1 + r.IntN(2))}
			a.Region, a.Bytes = int(a.Type), uint64(10*(1+a.Block))
			switch n := r.IntN(20); {
			case n < 8:
				a.Op = OpWrite
			case n == 8:
				a.Op = OpFree
			case n == 9:
				a.Op = OpAlloc
			default:
				a.Op = OpRead
			}
			m.Add(&a)
			all = append(all, a)
		}
		m.Finish(now + 3)
		for _, kind := range []RegionType{Weight, KVCache} {
			compareMeter(t, m.Type(kind), all, kind, now+3)
		}
	}
}

// compareMeter works a type's figures out from all touches, touch by touch.
func compareMeter(t *testing.T, got *Metrics, all []Touch, kind RegionType, end int64) {
	t.Helper()
	want := newMetrics(2)
	sets := [2]map[int64]map[int64]uint64{{}, {}}
	for i, a := range all {
		if a.Type != kind {
			continue
		}
		touch := a.Op == OpRead || a.Op == OpWrite
		before := lastTouch(all[:i], a)
		switch {
		case touch && before >= 0:
			want.IAI.Add(a.NS - all[before].NS)
			want.Reuse.Add(int64(between(all[before+1:i], a)))
		case a.Op == OpAlloc || a.Op == OpFree:
			continue
		}
		for k, length := range []int64{7, 50} {
			w := (a.NS - all[0].NS) / length
			if sets[k][w] == nil {
				sets[k][w] = map[int64]uint64{}
			}
			sets[k][w][a.Block+10*life(all[:i], a)] = a.Bytes
		}
		if a.Op == OpRead {
			want.Reads++
			continue
		}
		want.Writes++
		retained, censored := retention(all[i+1:], a)
		want.Retention.Add(retained, censored)
	}
	if got.Reads != want.Reads || got.Writes != want.Writes || got.IAI.Count != want.IAI.Count || got.IAI.Sum != want.IAI.Sum || got.Reuse.Count != want.Reuse.Count || got.Reuse.Sum != want.Reuse.Sum ||
		got.Retention.Count != want.Retention.Count || got.Retention.Sum != want.Retention.Sum || got.Retention.Censored != want.Retention.Censored {
		t.Fatalf("%v: %+v\nwant %+v", kind, got, want)
	}
	for k, length := range []int64{7, 50} {
		sum, most := uint64(0), uint64(0)
		for _, set := range sets[k] {
			bytes := uint64(0)
			for _, n := range set {
				bytes += n
			}
			sum, most = sum+bytes, max(most, bytes)
		}
		mean, gotMost := got.WorkingSet(k)
		if n := (end-all[0].NS)/length + 1; mean != float64(sum)/float64(n) || gotMost != most {
			t.Fatalf("%v: working set %v, at most %d, want %v of %d windows, %d", kind, mean, gotMost, sum, n, most)
		}
	}
}

func same(a, b Touch) bool { return a.Region == b.Region && a.Block == b.Block }

// life is how many lives of a block came before.
func life(before []Touch, a Touch) (n int64) {
	for _, b := range before {
		if same(b, a) && (b.Op == OpAlloc || b.Op == OpFree) {
			n++
		}
	}
	return n
}

// lastTouch is the newest read or write of a block in its present life, or -1.
func lastTouch(before []Touch, a Touch) int {
	for i := len(before) - 1; i >= 0; i-- {
		if same(before[i], a) {
			if before[i].Op == OpAlloc || before[i].Op == OpFree {
				return -1
			}
			return i
		}
	}
	return -1
}

// between is the bytes of the different other blocks that were touched and live on.
func between(touches []Touch, a Touch) (bytes uint64) {
	seen := map[blockKey]uint64{}
	for _, b := range touches {
		key := blockKey{b.Region, b.Block}
		if b.Op == OpAlloc || b.Op == OpFree {
			delete(seen, key)
		} else if !same(a, b) {
			seen[key] = b.Bytes
		}
	}
	for _, n := range seen {
		bytes += n
	}
	return bytes
}

// retention is how long a write was needed.
func retention(after []Touch, write Touch) (ns int64, censored bool) {
	for _, a := range after {
		if !same(a, write) {
			continue
		}
		if a.Op != OpRead {
			return ns, false
		}
		ns = a.NS - write.NS
	}
	return ns, true
}

// TestMeterForgets: what is freed takes no memory, however long a trace is.
func TestMeterForgets(t *testing.T) {
	m := NewMeter(100)
	for i := range int64(200_000) {
		m.Add(&Touch{NS: i, Op: OpWrite, Type: Activation, Region: int(i % 3), Block: i, Bytes: 64})
		m.Add(&Touch{NS: i, Op: OpRead, Type: Activation, Region: int(i % 3), Block: i, Bytes: 64})
		if i >= 10 {
			m.Add(&Touch{NS: i, Op: OpFree, Type: Activation, Region: int((i - 10) % 3), Block: i - 10})
		}
	}
	if len(m.blocks) != 10 || len(m.order.at) > 128 || m.order.live != 10 {
		t.Errorf("%d blocks, %d places", len(m.blocks), len(m.order.at))
	}
	one := &Touch{NS: 300_000, Op: OpRead, Type: Activation, Region: 1, Block: 199_999, Bytes: 64}
	if n := testing.AllocsPerRun(1000, func() { m.Add(one) }); n != 0 {
		t.Errorf("%v allocations per touch", n)
	}
}

func BenchmarkMeter(b *testing.B) {
	m := NewMeter(second)
	touches := make([]Touch, 1<<16)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range touches {
		touches[i] = Touch{Op: AccessOp(1 + r.IntN(2)), Type: Weight, Region: r.IntN(300), Block: int64(r.IntN(64)), Bytes: 4096, Offset: uint64(r.IntN(1 << 18)), Size: 4096}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a := &touches[i&(len(touches)-1)]
		a.NS = int64(i) * 1000
		m.Add(a)
	}
}
