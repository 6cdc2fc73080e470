package ggmlhooks

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/store/label"
)

func TestSampleIndices(t *testing.T) {
	got := label.SampleIndices(nil, 42, 1000, 100)
	if len(got) != 100 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 100 || got[99] >= 1000 {
		t.Fatalf("%d indices: %v", len(got), got)
	}
	if !slices.Equal(got, label.SampleIndices(nil, 42, 1000, 100)) {
		t.Error("the same seed chose otherwise")
	}
	if slices.Equal(got, label.SampleIndices(nil, 43, 1000, 100)) {
		t.Error("another seed chose the same")
	}
	if all := label.SampleIndices(nil, 1, 5, 5); !slices.Equal(all, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("5 of 5: %v", all)
	}
	counts := make([]int, 10) // every index equally often
	for seed := uint64(0); seed < 20000; seed++ {
		for _, i := range label.SampleIndices(nil, SampleSeed(7, seed, 3, 0), 10, 3) {
			counts[i]++
		}
	}
	for i, n := range counts {
		if n < 5700 || n > 6300 { // 6000 ± 4.6 standard deviations
			t.Errorf("index %d was chosen %d times of 60000, expected 6000", i, n)
		}
	}
}

func TestSampleSize(t *testing.T) {
	for _, test := range []struct {
		n    int64
		rate float64
		want int64
	}{{256, 0.1, 25}, {256, 1, 256}, {3, 0.1, 1}, {1, 0.5, 1}} {
		if got := SampleSize(test.n, test.rate); got != test.want {
			t.Errorf("%d at %g: %d, want %d", test.n, test.rate, got, test.want)
		}
	}
}
