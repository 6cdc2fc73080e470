package tensors

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

func statsOf(values ...float32) Stats {
	var a Accumulator
	a.Add(values)
	return a.Stats()
}

func TestStatsKnownAnswers(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negativeZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		name   string
		values []float32
		want   string
	}{
		{"none", nil, `{"elements":0,"zeros":0,"sparsity":0,"nan":0,"inf":0}`},
		{"one", []float32{3},
			`{"elements":1,"zeros":0,"sparsity":0,"nan":0,"inf":0,"mean":3,"std":0,"min":3,"max":3,"l2_norm":3}`},
		{"population deviation", []float32{2, 4, 4, 4, 5, 5, 7, 9},
			`{"elements":8,"zeros":0,"sparsity":0,"nan":0,"inf":0,"mean":5,"std":2,"min":2,"max":9,` +
				`"l2_norm":15.231546211727817}`},
		{"zeros of both signs", []float32{0, negativeZero, 1, -1},
			`{"elements":4,"zeros":2,"sparsity":0.5,"nan":0,"inf":0,"mean":0,"std":0.7071067811865476,"min":-1,` +
				`"max":1,"l2_norm":1.4142135623730951}`},
		{"not finite", []float32{nan, inf, -inf, 3, 4},
			`{"elements":5,"zeros":0,"sparsity":0,"nan":1,"inf":2,"mean":3.5,"std":0.5,"min":3,"max":4,"l2_norm":5}`},
		{"nothing finite", []float32{nan, inf}, `{"elements":2,"zeros":0,"sparsity":0,"nan":1,"inf":1}`},
	} {
		got, err := json.Marshal(statsOf(c.values...))
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\ngot  %s %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

// TestStatsOfAnyPartition compares with a plain two-pass computation, for every way to cut the values, with a mean
// far above the deviation, where a sum of squares in one pass fails.
func TestStatsOfAnyPartition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 3*statsBlock+17)
	for i := range values {
		values[i] = 30000 + float32(rng.NormFloat64())
	}
	want := plainStats(values)
	for _, cut := range []int{1, 100, statsBlock, len(values)} {
		var total Accumulator
		for start := 0; start < len(values); start += cut {
			var part Accumulator
			part.Add(values[start:min(start+cut, len(values))])
			total.Merge(&part)
		}
		got := total.Stats()
		for name, pair := range map[string][2]float64{
			"mean": {got.Mean, want.Mean}, "std": {got.Std, want.Std}, "min": {got.Min, want.Min},
			"max": {got.Max, want.Max}, "l2_norm": {got.L2, want.L2},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*math.Abs(pair[1]) {
				t.Errorf("in parts of %d: %s is %v, not %v", cut, name, pair[0], pair[1])
			}
		}
	}
}

func plainStats(values []float32) Moments {
	m := Moments{Min: math.Inf(1), Max: math.Inf(-1)}
	var sum, squares, distances float64
	for _, v := range values {
		x := float64(v)
		sum += x
		squares += x * x
		m.Min, m.Max = math.Min(m.Min, x), math.Max(m.Max, x)
	}
	n := float64(len(values))
	m.Mean, m.L2 = sum/n, math.Sqrt(squares)
	for _, v := range values {
		distances += (float64(v) - m.Mean) * (float64(v) - m.Mean)
	}
	m.Std = math.Sqrt(distances / n)
	return m
}

func TestStatsAllocatesNothing(t *testing.T) {
	values := make([]float32, 10000)
	var a Accumulator
	if n := testing.AllocsPerRun(20, func() { a.Add(values) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStats(b *testing.B) {
	values := make([]float32, 1<<16)
	for i := range values {
		values[i] = float32(i%97) - 48
	}
	b.SetBytes(int64(4 * len(values)))
	b.ReportAllocs()
	var a Accumulator
	for b.Loop() {
		a.Add(values)
	}
	if a.elements == 0 {
		b.Fatal("nothing counted")
	}
}

// TestStatsOfBlocksWithNaN mixes finite and other blocks, and cuts right after a NaN.
func TestStatsOfBlocksWithNaN(t *testing.T) {
	values := make([]float32, 2*statsBlock+3)
	for i := range values {
		values[i] = float32(i)
	}
	values[statsBlock] = float32(math.NaN())
	values[2*statsBlock+2] = float32(math.Inf(-1))
	var a Accumulator
	a.Add(values)
	got := a.Stats()
	finite := append(append([]float32(nil), values[:statsBlock]...), values[statsBlock+1:2*statsBlock+2]...)
	want := plainStats(finite)
	if got.NaN != 1 || got.Inf != 1 || got.Zeros != 1 || got.Elements != uint64(len(values)) ||
		math.Abs(got.Mean-want.Mean) > 1e-9 ||
		math.Abs(got.Std-want.Std) > 1e-9 || got.Min != 0 || got.Max != want.Max {
		t.Errorf("got %+v %+v, want %+v", got, *got.Moments, want)
	}
}
