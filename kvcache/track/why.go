package track

import (
	"slices"

	"github.com/llamatap/llamatap/kvcache"
)

// judge finds out why tokens of a prompt were computed that a cache held, or had held. prompt is all of it, as far as
// it is known. The last token of a prompt is always computed: something must be chosen from it.
func (q *request) judge(x *slotContext, prompt []int32) {
	most := q.Prompt - 1
	own := min(common(q.before, prompt), most)
	other, slot := q.others(x, prompt)
	gone, evicted := x.history.best(prompt, q.Cached)
	other, evicted = min(other, most), min(evicted, most)
	w := &q.Request
	switch best := max(own, other, evicted); {
	case int64(len(prompt)) < q.Prompt || q.Computed == 0:
		return
	case best > q.Cached && best == own:
		q.own, w.Cause, w.Again = own, q.ownCause(x, own), own-q.Cached
	case best > q.Cached && best == other:
		w.Cause, w.Again, w.Holder = kvcache.CauseOtherSlot, other-q.Cached, int64(slot)
		if q.picked == lineOldest && !slices.Contains(q.busy, slot) {
			w.Cause = kvcache.CauseSimilarity
		}
	case best > q.Cached:
		q.gone, w.Cause, w.Again, w.By, w.AtNS = gone, kvcache.CauseEvicted, evicted-q.Cached, gone.by, gone.atNS
		if gone.shift {
			w.Cause = kvcache.CauseShift
		}
	case q.Cached < int64(len(q.before)) && q.Cached < most && q.before[q.Cached] != unknownToken:
		w.Cause, w.Again = kvcache.CauseDiffers, min(int64(len(q.before)), most)-q.Cached
		w.Had, w.Wants = int64(q.before[q.Cached]), int64(prompt[q.Cached])
	default:
		return
	}
	w.Pos = q.Cached
	w.Bytes = w.Again * x.cellBytes
	w.CostNS = int64(float64(q.FirstNS-q.PromptNS) * float64(w.Again) / float64(q.Computed))
}

// ownCause is why a request did not use the first tokens that its own slot held of its prompt. A memory that must be
// cut back for that may be unable to.
func (q *request) ownCause(x *slotContext, own int64) kvcache.Cause {
	cut := own < int64(len(q.before))
	switch {
	case q.adapters:
		return kvcache.CauseAdapters
	case q.ask != nil && q.ask.off:
		return kvcache.CauseOff
	case q.steered:
		return kvcache.CauseSteering
	case x.recurrent && (cut || q.Cached > 0):
		return kvcache.CauseRecurrent
	case x.window && (cut || q.Cached > 0):
		return kvcache.CauseWindow
	}
	return kvcache.CauseOff
}

// others is how much of a prompt another slot holds, and which.
func (q *request) others(x *slotContext, prompt []int32) (most int64, slot int32) {
	slot = -1
	for seq, s := range x.slots {
		n := common(s.cells[:min(q.held[seq], len(s.cells))], prompt)
		if s != q.slot && (n > most || n == most && n > 0 && seq < slot) {
			most, slot = n, seq
		}
	}
	return most, slot
}
