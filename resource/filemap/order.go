package filemap

import (
	"cmp"
	"slices"
	"sort"

	"github.com/llamatap/llamatap/resource"
)

// order compares the first faults of an execution with the order of its graph's weights; nil where none of them was
// one's.
func (r *Recorder) order(s *segment) *resource.WaitOrder {
	if len(s.own.first) == 0 || len(s.graph.Weights) == 0 {
		return nil
	}
	rank := make(map[string]int, len(s.graph.Weights))
	for i, name := range s.graph.Weights {
		rank[name] = i
	}
	first := slices.Clone(s.own.first)
	slices.SortStableFunc(first, func(a, b firstFault) int { return cmp.Compare(a.begin, b.begin) })
	var ranks []int
	for _, f := range first {
		if i, ok := rank[r.o.Files.Place(f.place).Tensor]; ok {
			ranks = append(ranks, i)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	o := &resource.WaitOrder{Tensors: len(ranks), Known: len(s.graph.Weights), InOrder: rising(ranks)}
	o.Ordered = o.InOrder == o.Tensors
	return o
}

// rising is the length of the longest rising subsequence.
func rising(ranks []int) int {
	var ends []int // the smallest end of a subsequence of each length
	for _, v := range ranks {
		i := sort.SearchInts(ends, v)
		if i == len(ends) {
			ends = append(ends, v)
		} else {
			ends[i] = v
		}
	}
	return len(ends)
}
