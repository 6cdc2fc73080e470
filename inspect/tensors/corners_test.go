package tensors

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestWriteCorners(t *testing.T) {
	count := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i)
		}
		return values
	}
	for _, c := range []struct {
		name  string
		array Array
		want  string
	}{
		{"scalar", Array{nil, []float32{0.5}}, "0.5\n"},
		{"short", Array{[]int64{6}, count(6)}, "[0, 1, 2, 3, 4, 5]\n"},
		{"long", Array{[]int64{7}, count(7)}, "[0, 1, 2, …, 4, 5, 6]\n"},
		{"empty", Array{[]int64{0}, nil}, "[]\n"},
		{"empty rows", Array{[]int64{0, 4}, nil}, "[\n]\n"},
		{"two", Array{[]int64{2, 2}, count(4)}, "[\n [0, 1]\n [2, 3]\n]\n"},
		{"three", Array{[]int64{2, 1, 2}, count(4)}, "[\n [\n  [0, 1]\n ]\n [\n  [2, 3]\n ]\n]\n"},
		{"many rows", Array{[]int64{8, 1}, count(8)}, "[\n [0]\n [1]\n [2]\n …\n [5]\n [6]\n [7]\n]\n"},
		{"not finite", Array{[]int64{3}, []float32{float32(math.NaN()), float32(math.Inf(-1)), 1.0 / 3}}, "[NaN, -Inf, 0.33333334]\n"},
	} {
		var b strings.Builder
		if err := WriteCorners(&b, c.array); err != nil || b.String() != c.want {
			t.Errorf("%s:\n%q, not\n%q %v", c.name, b.String(), c.want, err)
		}
	}
}

func TestJSONFloat(t *testing.T) {
	data, err := json.Marshal([]jsonFloat{1.5, jsonFloat(math.NaN()), jsonFloat(math.Inf(1)), jsonFloat(math.Inf(-1)), 1e-30, 0.1})
	if want := `[1.5,"NaN","Infinity","-Infinity",1e-30,0.1]`; err != nil || string(data) != want {
		t.Errorf("%s %v", data, err)
	}
}
