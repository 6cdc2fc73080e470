package tensors

import (
	"iter"

	"github.com/llamatap/llamatap/store/label"
)

// rowsAhead hands out the token rows of an index by their numbers, and reads it only as far as it must: they come
// nearly in order.
type rowsAhead struct {
	next    func() (label.Row, bool)
	stop    func()
	waiting map[int64]label.Row // read, and not taken
	read    int64               // largest number so far
	ended   bool
}

// farAhead is how far after a row another one may come whose number is smaller.
const farAhead = 1 << 16

func newRowsAhead(r *Run) *rowsAhead {
	a := &rowsAhead{waiting: map[int64]label.Row{}, read: -1}
	a.next, a.stop = iter.Pull(func(yield func(label.Row) bool) {
		for e := range r.Stream.Executions() {
			for _, row := range e.Rows {
				if row.Phase != label.PhaseSetup && row.Index >= 0 && !yield(row) {
					return
				}
			}
		}
	})
	return a
}

// takeRow returns the row of a token, once; false if there is none.
func (a *rowsAhead) takeRow(index int64) (label.Row, bool) {
	row, ok := a.waiting[index]
	for !ok && !a.ended && a.read < index+farAhead {
		if !a.advance() {
			break
		}
		row, ok = a.waiting[index]
	}
	delete(a.waiting, index)
	return row, ok
}

// advance reads one row more.
func (a *rowsAhead) advance() bool {
	row, more := a.next()
	if a.ended = !more; a.ended {
		return false
	}
	a.waiting[row.Index], a.read = row, max(a.read, row.Index)
	return true
}

// countUntaken reads to the end and returns how many rows were not taken, and the smallest number among them.
func (a *rowsAhead) countUntaken() (n int, least int64) {
	least = -1
	seen := func(index int64) {
		if n++; least < 0 || index < least {
			least = index
		}
	}
	for index := range a.waiting {
		seen(index)
	}
	for row, more := a.next(); more; row, more = a.next() {
		seen(row.Index)
	}
	return n, least
}
