package tensors

import (
	"math"
	"strings"
	"testing"
)

func TestWriteCorners(t *testing.T) {
	count := func(n int) []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i)
		}
		return values
	}
	for _, c := range []struct {
		name   string
		shape  []int64
		values []float64
		want   string
	}{
		{"scalar", nil, []float64{0.5}, "0.5\n"},
		{"short", []int64{6}, count(6), "[0, 1, 2, 3, 4, 5]\n"},
		{"long", []int64{7}, count(7), "[0, 1, 2, …, 4, 5, 6]\n"},
		{"empty", []int64{0}, nil, "[]\n"},
		{"empty rows", []int64{0, 4}, nil, "[\n]\n"},
		{"two", []int64{2, 2}, count(4), "[\n [0, 1]\n [2, 3]\n]\n"},
		{"three", []int64{2, 1, 2}, count(4), "[\n [\n  [0, 1]\n ]\n [\n  [2, 3]\n ]\n]\n"},
		{"many rows", []int64{8, 1}, count(8), "[\n [0]\n [1]\n [2]\n …\n [5]\n [6]\n [7]\n]\n"},
		{"not finite", []int64{3}, []float64{math.NaN(), math.Inf(-1), float64(float32(1.0) / 3)},
			"[NaN, -Inf, 0.33333334]\n"},
	} {
		var b strings.Builder
		if writeCorners(&b, c.shape, c.values, "", 32); b.String() != c.want {
			t.Errorf("%s:\n%q, not\n%q", c.name, b.String(), c.want)
		}
	}
}

func TestJSONValue(t *testing.T) {
	for v, want := range map[float64]string{
		1.5: "1.5", math.Inf(1): `"Infinity"`, math.Inf(-1): `"-Infinity"`, float64(float32(0.1)): "0.1",
		1e-30: "1e-30",
	} {
		if got := string(appendJSONValue(nil, v, 32)); got != want {
			t.Errorf("%v: %s, not %s", v, got, want)
		}
	}
	if got := string(appendJSONValue(nil, math.NaN(), 64)); got != `"NaN"` {
		t.Errorf("NaN: %s", got)
	}
}
