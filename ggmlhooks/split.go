package ggmlhooks

import "slices"

// group is the unused rows of a batch that belong to one set of sequences, in order.
type group struct {
	seqs []int32
	rows []int32
}

// split appends the rows of a micro-batch of llama.cpp's equal split: sets of sequences that have nothing in
// common, in the order in which the batch brings them, each with the same number of rows. A memory with one stream
// per sequence takes consecutive sequences alone. Where the tokens are others, it appends nothing and returns
// false. (What a split by sequence makes is the first set alone.)
func (m *rowMatcher) split(dst, tokens, pos []int32) ([]int32, bool) {
	start := len(dst)
	for _, consecutive := range []bool{false, true} {
		groups := m.groups(consecutive, len(tokens))
		for _, n := range []int{len(groups), 1} {
			if n == 0 || n > len(groups) || len(tokens)%n != 0 {
				continue
			}
			dst = appendEqual(dst[:start], groups[:n], len(tokens)/n)
			if len(dst) == start+len(tokens) && m.same(dst[start:], tokens, pos) {
				for _, row := range dst[start:] {
					m.used[row] = true
				}
				return dst, true
			}
		}
	}
	return dst[:start], false
}

// groups gathers the unused rows, at most n of each set of sequences.
func (m *rowMatcher) groups(consecutive bool, n int) (groups []group) {
	for i := range m.rows {
		if m.used[i] {
			continue
		}
		seqs := m.rows[i].Seqs
		at := slices.IndexFunc(groups, func(g group) bool { return overlap(g.seqs, seqs) })
		switch {
		case at >= 0 && slices.Equal(groups[at].seqs, seqs):
			if len(groups[at].rows) < n {
				groups[at].rows = append(groups[at].rows, int32(i))
			}
		case at >= 0 || consecutive && len(groups) > 0 && seqs[0] != groups[len(groups)-1].seqs[0]+1:
		default:
			groups = append(groups, group{seqs, []int32{int32(i)}})
		}
	}
	return groups
}

func overlap(a, b []int32) bool {
	return slices.ContainsFunc(a, func(seq int32) bool { return slices.Contains(b, seq) })
}

func appendEqual(dst []int32, groups []group, each int) []int32 {
	for _, g := range groups {
		dst = append(dst, g.rows[:min(each, len(g.rows))]...)
	}
	return dst
}

// same reports whether rows of the batch have a micro-batch's tokens and positions.
func (m *rowMatcher) same(rows, tokens, pos []int32) bool {
	for i, row := range rows {
		if m.rows[row].Token != tokens[i] || !samePos(m.rows[row].Pos, at(pos, i)) {
			return false
		}
	}
	return true
}
