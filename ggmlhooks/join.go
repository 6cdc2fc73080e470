package ggmlhooks

// RowJoiner makes the token rows of micro-batches, of all contexts of a process: ids and positions from the graph's
// inputs, sequences, phase and request from the program's batches and from what it does to its sequences. Its zero
// value is ready for use.
type RowJoiner struct {
	ctxs map[uint32]*joined
}

// joined is what is known of a context.
type joined struct {
	match     rowMatcher
	sequences sequenceTracker
	sampled   bool // the program gives its sequences samplers
	drafts    bool // it does so in another context, whose sequences these follow
	call      uint64
	rows      []int32
}

func (j *RowJoiner) context(number uint32) *joined {
	c := j.ctxs[number]
	if c == nil {
		if j.ctxs == nil {
			j.ctxs = map[uint32]*joined{}
		}
		c = &joined{}
		j.ctxs[number] = c
	}
	return c
}

// Context notes how a context cuts its batches.
func (j *RowJoiner) Context(c *Context) {
	match := &j.context(c.Number).match
	match.UBatch, match.Grouped = int(c.NUBatch), c.Recurrent || c.Hybrid
}

// Call notes the program's batch.
func (j *RowJoiner) Call(c *Call) {
	ctx := j.context(c.Ctx)
	ctx.call = c.Number
	ctx.match.Reset(c.Rows)
	ctx.sequences.Reset(c)
}

// SeqChange notes what the program did to sequences. A context that is given no samplers itself follows the one
// that is: a draft model's sequences are those of its target.
func (j *RowJoiner) SeqChange(c *SeqChange) {
	own := j.context(c.Ctx)
	c.Rejected = int32(own.sequences.change(c))
	if own.drafts {
		c.Rejected = 0 // what a draft model computed is not a token of its target
	}
	if c.Kind != SeqSampler {
		return
	}
	own.sampled, own.drafts = true, false
	for _, ctx := range j.ctxs {
		if !ctx.sampled {
			ctx.drafts = true
			ctx.sequences.change(c)
			ctx.sequences.sequence(c.Seq).target = own.sequences.sequence(c.Seq)
		}
	}
}

// Drafts reports whether a context is a draft model's: its sequences follow those of another one.
func (j *RowJoiner) Drafts(ctx uint32) bool { return j.context(ctx).drafts }

// Forget makes a context's sequences new: what it did was set-up.
func (j *RowJoiner) Forget(ctx uint32) { j.context(ctx).sequences.Forget() }

// OnePhase is the phase that all rows have, unknown where they have several or there is none.
func OnePhase(rows []Row) Phase {
	for i := range rows {
		if rows[i].Phase != rows[0].Phase {
			return PhaseUnknown
		}
	}
	if len(rows) == 0 {
		return PhaseUnknown
	}
	return rows[0].Phase
}

// Join appends to rows those of an execution and to begun the requests that begin with it. The phase is that of the
// execution: prefill where any of its rows is a prompt's, maintenance where it has none.
func (j *RowJoiner) Join(rows []Row, begun []RequestBegin, e *Exec) ([]Row, []RequestBegin, Phase) {
	if len(e.Tokens) == 0 {
		return rows, begun, PhaseMaintenance
	}
	ctx, phase, first, before := j.context(e.Ctx), PhaseDecode, len(rows), len(begun)
	ctx.rows = ctx.rows[:0]
	if ctx.call == e.Call {
		ctx.rows = ctx.match.match(ctx.rows, e.Tokens, e.Pos)
	}
	for i, token := range e.Tokens {
		row := Row{Pos: at(e.Pos, i), Phase: PhasePrefill, Request: RequestUnknown}
		if i < len(ctx.rows) && ctx.rows[i] >= 0 {
			row, begun = ctx.sequences.addRow(begun, ctx.match.Row(ctx.rows[i]), row.Pos)
		}
		row.Index, row.Token = e.TokenFirst+int64(i), token
		if row.Phase == PhasePrefill {
			phase = PhasePrefill
		}
		rows = append(rows, row)
	}
	for _, i := range e.Outputs {
		if int(i) < len(e.Tokens) && i >= 0 {
			rows[first+int(i)].Output = true
		}
	}
	for i := range begun[before:] {
		begun[before+i].Ctx = e.Ctx
	}
	return rows, begun, phase
}
