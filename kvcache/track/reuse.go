package track

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// requests is how much the prompts of a context's requests find in its caches.
type requests struct {
	of      map[int32]*seqRequest // the newest of each sequence
	touched map[int32]int64       // when each sequence was last computed with
	reuse   *kvcache.Reuse        // of all contexts but draft models', or of these
	// Of this one: cells that prompts found, and that they needed. Requests of which that is not known are left out.
	reused, needed int64
}

// count adds cells that a prompt found or needed.
func (q *requests) count(reused, needed int64) {
	q.reused, q.needed = q.reused+reused, q.needed+needed
	q.reuse.Reused += reused
	q.reuse.Needed += needed
}

// seqRequest is what the prompt of a sequence's request found and took.
type seqRequest struct {
	reused, needed int64
	unknown        bool
}

// begin counts what the prompts of requests find in the cache, before their first tokens are written.
func (q *requests) begin(x *execution) {
	for _, b := range x.Begun {
		q.of[b.Seq] = &seqRequest{}
		first := int32(-1)
		for i := range x.rows {
			if row := &x.rows[i]; len(row.Seqs) > 0 && slices.Contains(row.Seqs, b.Seq) {
				first = row.Pos
				break
			}
		}
		_, high, known := x.ctx.posRange(b.Seq)
		// What it follows may have been loaded with a state, reported or not.
		if first < 0 || first > 0 && (!known || first > high+1) {
			q.of[b.Seq].unknown = true
			q.reuse.Unknown++
			continue
		}
		q.reuse.Requests++
		if first == 0 {
			continue
		}
		q.of[b.Seq].reused, q.of[b.Seq].needed = int64(first), int64(first)
		q.reuse.Hits++
		q.count(int64(first), int64(first))
		if last, ok := q.touched[b.Seq]; ok {
			q.reuse.Gap.Add(x.MonoNS - last)
		}
	}
	for i := range x.rows {
		for _, seq := range x.rows[i].Seqs {
			if of := q.of[seq]; of != nil && x.Rows[i].Phase == ggmlhooks.PhasePrefill {
				of.needed++
				if !of.unknown {
					q.count(0, 1)
				}
			}
		}
	}
}

// reveal finds what a request of which that was not known found in the cache: of the n cells that its last token
// may read, those that this execution, its first, does not write.
func (q *requests) reveal(x *execution, seq int32, n int) {
	of := q.of[seq]
	begun := func(b ggmlhooks.RequestBegin) bool { return b.Seq == seq }
	if of == nil || !of.unknown || !slices.ContainsFunc(x.Begun, begun) {
		return
	}
	found := int64(n)
	for i := range x.rows {
		if slices.Contains(x.rows[i].Seqs, seq) {
			found--
		}
	}
	if found < 0 {
		return
	}
	of.unknown, of.reused, of.needed = false, found, of.needed+found
	q.count(found, of.needed)
	q.reuse.Unknown--
	q.reuse.Requests++
	if found > 0 {
		q.reuse.Hits++
	}
}

// touch notes which sequences an execution computed with.
func (q *requests) touch(x *execution) {
	for i := range x.rows {
		if seqs := x.rows[i].Seqs; len(seqs) > 0 {
			q.touched[seqs[0]] = x.End.MonoNS
		}
	}
}

// change takes in what the program did to sequences.
func (q *requests) change(c *ggmlhooks.SeqChange) {
	switch c.Kind {
	case ggmlhooks.SeqCopy:
		if ns, ok := q.touched[c.Seq]; ok {
			q.touched[c.To] = ns
		}
	case ggmlhooks.SeqRestore:
		delete(q.touched, c.Seq)
	}
}

// forget makes the sequences new: what was done to them was set-up.
func (q *requests) forget() {
	clear(q.of)
	clear(q.touched)
}
