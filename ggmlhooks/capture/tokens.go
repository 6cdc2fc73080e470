package capture

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// tokenOrder writes the tokens of settled executions in their order: contexts that compute side by side are settled in
// any order.
type tokenOrder struct {
	to      Tokens // nil: nobody wants them
	waiting []tokenRun
	free    [][]ggmlhooks.Row
}

// tokenRun is the tokens of one execution.
type tokenRun struct {
	ctx  uint32
	rows []ggmlhooks.Row
}

// maxWaiting bounds how many executions wait. A context that is never decided about must not keep the others'
// tokens forever: beyond this they are written out of order.
const maxWaiting = 1 << 16

// add takes the tokens of an execution in. It copies them.
func (o *tokenOrder) add(x *ggmlhooks.Execution) {
	if o.to == nil || len(x.Rows) == 0 {
		return
	}
	var rows []ggmlhooks.Row
	if n := len(o.free); n > 0 {
		rows, o.free = o.free[n-1], o.free[:n-1]
	}
	at, _ := slices.BinarySearchFunc(o.waiting, x.TokenFirst, func(r tokenRun, first int64) int {
		return cmp.Compare(r.rows[0].Index, first)
	})
	o.waiting = slices.Insert(o.waiting, at, tokenRun{x.Ctx, append(rows, x.Rows...)})
}

// flush writes the tokens before a number. Those of an execution of which one could not be written are given up: what
// the file lacks is in the stream.
func (o *tokenOrder) flush(before int64) (err error) {
	n := 0
	for err == nil && n < len(o.waiting) && (o.waiting[n].rows[0].Index < before || len(o.waiting)-n > maxWaiting) {
		rows := o.waiting[n].rows
		for i := 0; i < len(rows) && err == nil; i++ {
			err = o.to.Append(o.waiting[n].ctx, &rows[i])
		}
		o.free = append(o.free, rows[:0])
		n++
	}
	o.waiting = slices.Delete(o.waiting, 0, n)
	return err
}
