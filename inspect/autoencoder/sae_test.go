package autoencoder

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLargest compares the selection with a sort, whatever was guessed, with equal and negative values.
func TestLargest(t *testing.T) {
	testenv.Once(t)
	r := rand.New(rand.NewPCG(1, 1))
	s, _ := newSAE(TopK, 1, 500, 1)
	c := s.encoder(Plain{})
	for range 300 {
		values := make([]float32, 1+r.IntN(500))
		for i := range values {
			values[i] = float32(r.IntN(40)-20) * float32(r.IntN(3)+1) / 8
		}
		k, floor := 1+r.IntN(60), []float32{0, -1e30, 1}[r.IntN(3)]
		var want []int32
		for i, v := range values {
			if v > floor {
				want = append(want, int32(i))
			}
		}
		slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(values[b], values[a]) })
		want = want[:min(k, len(want))]
		slices.Sort(want)
		guess := []float32{0, 1, 4, 1e30}[r.IntN(4)]
		got, next := c.largest(nil, values, k, floor, guess)
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v: the %d largest of %v above %v", got, want, k, values, floor)
		}
		for _, i := range got {
			if floor == 0 && values[i] <= next {
				t.Fatalf("%v is guessed, and %v was chosen", next, values[i])
			}
		}
	}
}
