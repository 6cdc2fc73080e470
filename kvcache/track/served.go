package track

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Served takes in what the server did.
func (r *Requests) Served(s *ggmlhooks.Served) error {
	switch s.Kind {
	case ggmlhooks.ServedChoice:
		if x := r.context(s.Ctx); r.owner(x) {
			x.choose(s, r.o.Keep)
		}
	case ggmlhooks.ServedHTTP:
		r.http(s)
	case ggmlhooks.ServedAsk:
		r.ask(s)
	case ggmlhooks.ServedAnswer:
		r.answer(s, func() []*request { return unanswered(r) })
		return r.hand(func(q *request) bool { return q.ask != nil })
	case ggmlhooks.ServedLine:
		return r.line(s)
	case ggmlhooks.ServedSaved:
		x := r.context(s.Ctx)
		x.saves.put(s.Key, x.slot(s.Row).cells)
	case ggmlhooks.ServedAdapters:
		r.context(s.Ctx).made.adapters = s.Key
	case ggmlhooks.ServedEmbedded:
		if x := r.context(s.Ctx); r.owner(x) {
			x.embed(s, r.o.Keep)
		}
	case ggmlhooks.ServedRestored:
		x := r.context(s.Ctx)
		to := x.slot(s.Row)
		to.cells, to.changed = slices.Clone(x.saves.tokens[s.Key]), 0
		x.report(r.o.Changed)
	}
	return nil
}

// choose takes in a token that was chosen from a row of the context's last call. keep is how many are kept.
func (x *slotContext) choose(c *ggmlhooks.Served, keep int) {
	row := x.row(c.Row)
	if row < 0 || row >= len(x.call) {
		return
	}
	s := x.chooser(x.slot(x.call[row].Seqs[0]))
	q := s.now
	if q == nil {
		return
	}
	if q.Output == 0 {
		q.FirstNS, q.embedded = c.MonoNS, nil
		prompt := q.prompted(keep)
		if int64(len(prompt)) == q.Prompt && !q.unseen {
			q.Blocks = x.hasher.Blocks(prompt)
		}
		q.judge(x, prompt)
	} else {
		q.Gaps = append(q.Gaps, float32(float64(c.MonoNS-q.LastNS)/1e6))
	}
	if s.chosen > 0 && s.calls > 1 && q.Output > 1 {
		q.Accepted++
	}
	s.chosen++
	q.LastNS = c.MonoNS
	q.Output++
	q.SampleNS += c.MonoNS - c.BegunNS
	q.GrammarNS += c.GrammarNS
	if q.ended = c.Value == 1; !q.ended && len(q.OutputIDs) < keep {
		q.OutputIDs = append(q.OutputIDs, c.Token)
	}
}

// row is the place in the last call of a row as llama.h counts it: one below 0 is counted from the last one with an
// output. -1: there is none.
func (x *slotContext) row(number int32) int {
	if number >= 0 {
		return int(number)
	}
	for i := len(x.call) - 1; i >= 0; i-- {
		if x.call[i].Output {
			if number++; number == 0 {
				return i
			}
		}
	}
	return -1
}

// chooser is the slot that chooses from a row of a slot. Those that share its prompt choose from its last row too, all
// in the order of their numbers.
func (x *slotContext) chooser(of *slot) *slot {
	s := of
	for _, other := range x.slots {
		if (other == of || other.from == of.seq) && other.chosen == 0 && (s.chosen > 0 || other.seq < s.seq) {
			s = other
		}
	}
	return s
}

// embed takes in that an embedding was read: the request's prompt is computed, and nothing follows it.
func (x *slotContext) embed(s *ggmlhooks.Served, keep int) {
	seq := s.Token
	if s.Row >= 0 && int(s.Row) < len(x.call) {
		seq = x.call[s.Row].Seqs[0]
	}
	if q := x.slot(seq).now; q != nil && q.embedded == nil && q.Output == 0 && q.Computed > 0 {
		q.embedded = slices.Clone(q.prompted(keep))
	}
}

// prompted ends a request's prompt, and returns what is known of it. The first tokens are kept.
func (q *request) prompted(keep int) []int32 {
	if q.Computed == 0 { // it shares another one's
		q.Cached = int64(len(q.slot.cells))
	}
	q.Prompt = q.Cached + q.Computed
	prompt := q.slot.cells[:min(q.Prompt, int64(len(q.slot.cells)))]
	q.hash, q.unseen = ggmlhooks.PromptHash(prompt), slices.Contains(prompt, unknownToken)
	if !q.unseen {
		q.PromptIDs = slices.Clone(prompt[:min(keep, len(prompt))])
	}
	return prompt
}

// unanswered are the requests whose answers were not seen, by when their slots were taken.
func unanswered(r *Requests) []*request {
	all := slices.Clone(r.pending)
	if r.served != nil {
		for _, s := range r.served.slots {
			if s.now != nil {
				all = append(all, s.now)
			}
		}
	}
	all = slices.DeleteFunc(all, func(q *request) bool { return q.ask != nil })
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// line takes in a line of the program's log.
func (r *Requests) line(s *ggmlhooks.Served) error {
	l := readLine(s.Line)
	if r.served == nil {
		return nil
	}
	x := r.served
	if l.what == lineCancel || l.what == lineError {
		for _, a := range r.asks {
			a.left = a.left || l.what == lineCancel && a.thread == s.Row
		}
		for _, slot := range x.slots {
			if q := slot.now; q != nil && q.Task == l.task {
				q.cancelled, q.failed = q.cancelled || l.what == lineCancel, q.failed || l.what == lineError
				q.long = max(q.long, l.n)
				r.resign(q, s.Row, r.running)
			}
		}
		return nil
	}
	if l.slot < 0 {
		return nil
	}
	slot := x.slot(l.slot)
	switch l.what {
	case lineSimilarity, lineOldest:
		r.picked = l.what
	case lineTimes: // what was accepted of a draft behind a stop string is not in the answer
		if q := slot.now; q != nil {
			if q.timed = true; l.n > 0 && l.n < q.Output {
				q.Output, q.Gaps = l.n, q.Gaps[:l.n-1]
			}
		}
	case lineLaunch:
		if slot.now == nil {
			r.launch(x, slot, l.task)
			slot.now.loggedNS = s.MonoNS
		}
	}
	return nil
}
