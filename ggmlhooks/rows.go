package ggmlhooks

import "slices"

// llama.cpp cuts a call's batch into micro-batches and may put the rows of several sequences in another order. The
// graph's inputs give each row's token and position exactly; which sequence it belongs to only the program's batch
// says. rowMatcher joins the two.
//
// A micro-batch that equals the next rows of the batch, as many as a micro-batch takes or all that are left, is
// those rows. Otherwise llama.cpp has grouped rows by sequence, and which it takes first is known: see split. Where
// that does not fit either, each row takes the first unused row of the batch with its token and position, one that
// continues the sequence of the row before it going first.
type rowMatcher struct {
	// UBatch is the most rows that the context's micro-batches have; 0 = unknown.
	UBatch int
	// Grouped is true if micro-batches always are grouped by sequence, as recurrent memory wants it: then that is tried
	// first. Such graphs have no positions, so that tokens which happen to be alike would fit the batch's order, too.
	Grouped bool
	rows    []CallRow
	used    []bool
	cursor  int
	places  map[rowKey][]int32 // made when a micro-batch does not follow the batch's order
}

type rowKey struct{ token, pos int32 }

// Reset starts a new call. rows is copied, its sequence lists are not.
func (m *rowMatcher) Reset(rows []CallRow) {
	m.rows = append(m.rows[:0], rows...)
	m.used = append(m.used[:0], make([]bool, len(rows))...)
	m.cursor = 0
	m.places = nil
}

// Row returns row i of the call.
func (m *rowMatcher) Row(i int32) *CallRow { return &m.rows[i] }

// match appends to dst, for each row of a micro-batch, the number of the batch's row that it is, or -1. pos may be
// empty.
func (m *rowMatcher) match(dst []int32, tokens, pos []int32) []int32 {
	if m.Grouped {
		if dst, ok := m.split(dst, tokens, pos); ok {
			return dst
		}
	}
	if m.follows(tokens, pos) {
		for range tokens {
			m.used[m.cursor] = true
			dst = append(dst, int32(m.cursor))
			m.cursor++
		}
		return dst
	}
	if dst, ok := m.split(dst, tokens, pos); ok {
		return dst
	}
	m.index()
	before := int32(-1)
	for i, token := range tokens {
		before = m.pick(token, at(pos, i), before)
		dst = append(dst, before)
	}
	return dst
}

func at(pos []int32, i int) int32 {
	if i < len(pos) {
		return pos[i]
	}
	return PosAuto
}

// follows reports whether the micro-batch is the next rows of the batch, in its order.
func (m *rowMatcher) follows(tokens, pos []int32) bool {
	left := len(m.rows) - m.cursor
	if len(tokens) > left || m.UBatch > 0 && len(tokens) != m.UBatch && len(tokens) != left {
		return false
	}
	for i, token := range tokens {
		row := &m.rows[m.cursor+i]
		if m.used[m.cursor+i] || row.Token != token || !samePos(row.Pos, at(pos, i)) {
			return false
		}
	}
	return true
}

func samePos(a, b int32) bool { return a == b || a == PosAuto || b == PosAuto }

func (m *rowMatcher) index() {
	if m.places != nil {
		return
	}
	m.places = make(map[rowKey][]int32, len(m.rows))
	for i, row := range m.rows {
		if !m.used[i] {
			key := rowKey{row.Token, row.Pos}
			m.places[key] = append(m.places[key], int32(i))
		}
	}
}

func (m *rowMatcher) unused(key rowKey) []int32 {
	return slices.DeleteFunc(m.places[key], func(i int32) bool { return m.used[i] })
}

// pick takes a row with token and position out of the index.
func (m *rowMatcher) pick(token, pos, before int32) int32 {
	key := rowKey{token, pos}
	places := m.unused(key)
	if len(places) == 0 {
		key.pos = PosAuto
		places = m.unused(key)
	}
	if len(places) == 0 {
		return -1
	}
	chosen := 0
	if before >= 0 {
		for i, place := range places {
			if continues(&m.rows[before], &m.rows[place]) {
				chosen = i
				break
			}
		}
	}
	row := places[chosen]
	m.places[key] = append(places[:chosen:chosen], places[chosen+1:]...)
	m.used[row] = true
	return row
}

// continues reports whether b is the next token of a's first sequence.
func continues(a, b *CallRow) bool {
	return len(a.Seqs) > 0 && len(b.Seqs) > 0 && a.Seqs[0] == b.Seqs[0] && (b.Pos == PosAuto || b.Pos == a.Pos+1)
}
