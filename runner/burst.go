package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
)

// alone returns the slot that is under way by itself and has a token to be decoded next; nil: there is none. What
// it decodes is what the next steps would, one token each: with none beside it nobody shares its batches, and a
// slot that is free has nothing to begin with, or waits for a line that is long in coming.
func (p *prompts) alone() *slot {
	var one *slot
	for _, s := range p.slots {
		switch {
		case !s.busy:
		case one != nil:
			return nil
		default:
			one = s
		}
	}
	if one == nil || len(one.done.Tokens) == 0 || one.request.Settings.TopLogprobs > 0 {
		return nil // logits are looked at
	}
	return one
}

// burst generates tokens of a slot that is alone in one call of C, until one of them may end the text, or for so
// long that a line that comes meanwhile need not wait.
func (p *prompts) burst(s *slot) error {
	if p.ctx.Err() != nil {
		return ErrInterrupted
	}
	var times [burstTokens]int64
	var room [burstTokens]llama.Token
	most := burstTokens
	if limit := s.request.Settings.Predict; limit > 0 {
		most = min(most, limit-len(s.done.Tokens))
	}
	g := llama.Generation{
		Pending: s.next, Pos: s.pos, Seq: s.seq, End: llama.Pos(p.llama.SequenceSize()), Pause: p.pause(s), Patience: burstTime,
	}
	n, failed := p.llama.Generate(s.sampler, p.batch, &g, room[:most], times[:most])
	now := int64(time.Since(s.begin)) // when the last of them was chosen
	for i, token := range room[:n] {
		s.pos++ // by the token before it, which was decoded
		if err := p.chosen(s, token, now-(times[n-1]-times[i])); err != nil || !s.busy {
			return errors.Join(err, failed)
		}
	}
	if failed != nil && g.Pending == llama.NoToken {
		return p.fail(s, failed)
	}
	return failed
}

// pause are the tokens with which a text may end by one of its own stops or reverse prompts; nil: there is none.
// They are the same for most prompts.
func (p *prompts) pause(s *slot) []bool {
	if len(s.request.Stop) == 0 && len(s.reverse.texts) == 0 {
		return nil
	}
	key := fmt.Sprintf("%q %q", s.reverse.texts, s.request.Stop)
	if p.pauseFor != key {
		p.pauseFor, p.pauses = key, s.reverse.endsWith(s.request.Stop)
	}
	return p.pauses
}
