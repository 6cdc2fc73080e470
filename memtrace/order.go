package memtrace

import (
	"cmp"
	"math"
	"slices"
)

// Ordered is one thing that two witnesses saw: a region with the times of its first touch.
type Ordered struct{ A, B int64 }

// KendallTau is how far two witnesses agree on an order: the coefficient τ-b of Kendall, (C - D) / √((n0 - n1)(n0 -
// n2)), C and D being the pairs that they have in the same order and in the opposite one, n0 all pairs, n1 and n2
// those that are equal for one of them. 1 is the same order, -1 the reverse. It takes O(n log n) (Knight 1966).
// False where one of the two saw no order: fewer than two things, or all at once. all is sorted.
func KendallTau(all []Ordered) (tau float64, ok bool) {
	slices.SortFunc(all, func(x, y Ordered) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	n := float64(len(all))
	pairs := n * (n - 1) / 2
	tiesA := ties(all, func(x, y Ordered) bool { return x.A == y.A })
	tiesBoth := ties(all, func(x, y Ordered) bool { return x == y })
	b := make([]int64, len(all))
	for i, x := range all {
		b[i] = x.B
	}
	swaps := inversions(b, make([]int64, len(b)))
	tiesB := ties(b, func(x, y int64) bool { return x == y })
	if pairs == tiesA || pairs == tiesB {
		return 0, false
	}
	return (pairs - tiesA - tiesB + tiesBoth - 2*swaps) / math.Sqrt((pairs-tiesA)*(pairs-tiesB)), true
}

// ties are the pairs of neighbours that are equal.
func ties[T any](all []T, equal func(x, y T) bool) (pairs float64) {
	for i := 0; i < len(all); {
		first := i
		for i++; i < len(all) && equal(all[first], all[i]); i++ {
		}
		pairs += float64(i-first) * float64(i-first-1) / 2
	}
	return pairs
}

// inversions sorts values, and returns how many pairs of them were in the wrong order.
func inversions(all, spare []int64) (pairs float64) {
	if len(all) < 2 {
		return 0
	}
	half := len(all) / 2
	pairs = inversions(all[:half], spare[:half]) + inversions(all[half:], spare[half:])
	copy(spare, all)
	left, right := spare[:half], spare[half:]
	for i := range all {
		if len(right) == 0 || len(left) > 0 && left[0] <= right[0] {
			all[i], left = left[0], left[1:]
			continue
		}
		pairs += float64(len(left))
		all[i], right = right[0], right[1:]
	}
	return pairs
}
