package memtrace

import (
	"math/rand/v2"
	"testing"
)

// TestDistances: distances are those of a search through all earlier touches, over several renumberings.
func TestDistances(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var d Distances
	var stack []int // the newest first
	size := func(item int) int64 { return int64(item%5 + 1) }
	for i := range 3 * minSlots {
		item := int(r.ExpFloat64() * 20)
		want, at := int64(0), -1
		for k, other := range stack {
			if other == item {
				at = k
				break
			}
			want += size(other)
		}
		if at < 0 {
			want = -1
		} else {
			stack = append(stack[:at], stack[at+1:]...)
		}
		stack = append([]int{item}, stack...)
		if got := d.Touch(item, size(item)); got != want {
			t.Fatalf("touch %d of item %d: distance %d, want %d", i, item, got, want)
		}
	}
}
