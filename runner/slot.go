package runner

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
)

// slot is a sequence of the context, and the prompt that is completed in it.
type slot struct {
	seq     llama.Seq
	begun   int32 // prompts before this one that were decoded in it
	busy    bool
	order   int // of the prompt among all, counted from 0
	line    promptLine
	request config.Request

	prompt   []llama.Token
	decoded  int       // tokens of the prompt that are decoded
	pos      llama.Pos // where the next token goes
	next     llama.Token
	output   int // index in the batch of the slot's last token, whose logits choose the next one
	sampler  *llama.Sampler
	sampling config.Sampling
	reverse  reverse
	text     []byte
	begin    time.Time
	ready    time.Time // when the prompt was decoded
	done     Completion
}

func (s *slot) close() {
	if s.sampler != nil {
		s.sampler.Close()
		s.sampler = nil
	}
}

// slots are the sequences of a context.
type slots []*slot

// busy reports whether a prompt is under way.
func (all slots) busy() bool {
	return slices.ContainsFunc(all, func(s *slot) bool { return s.busy })
}

func (all slots) close() {
	for _, s := range all {
		s.close()
	}
}

// onlyActive returns the slot that is under way by itself and has a token to be decoded next; nil: there is none. What
// it decodes is what the next steps would, one token each: with none beside it nobody shares its batches, and a
// slot that is free has nothing to begin with, or waits for a line that is long in coming.
func (all slots) onlyActive() *slot {
	var one *slot
	for _, s := range all {
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

// pauses are the tokens with which a text may end by its own stops or reverse prompts. They are the same for most
// prompts.
type pauses struct {
	of     string // which stops and reverse prompts
	tokens []bool
}

// find returns those of a slot; nil: there is none.
func (p *pauses) find(s *slot) []bool {
	if len(s.request.Stop) == 0 && len(s.reverse.texts) == 0 {
		return nil
	}
	if of := fmt.Sprintf("%q %q", s.reverse.texts, s.request.Stop); p.of != of {
		p.of, p.tokens = of, s.reverse.endsWith(s.request.Stop)
	}
	return p.tokens
}

// prepare makes what the prompt of a slot needs: its tokens and its sampler.
func (p *prompts) prepare(s *slot) (err error) {
	if s.prompt, err = p.promptTokens(&s.request); err != nil {
		return err
	}
	cfg := s.request.Settings
	s.sampling = modelSampling(cfg, p.model, p.Stderr)
	if p.Seed != 0 && s.sampling.Seed == config.RandomSeed {
		s.sampling.Seed = rand.New(rand.NewPCG(uint64(p.Seed), uint64(s.order))).Uint32N(config.RandomSeed)
	}
	if s.sampler, err = newSampler(p.model.Vocab(), &s.sampling, cfg.Escape, false); err != nil {
		return err
	}
	if s.reverse, err = newReverse(p.model.Vocab(), cfg.ReversePrompts, cfg.Escape); err != nil {
		return err
	}
	s.done.Seed, s.done.Sequence = s.sampler.Seed(), s.seq
	if p.packs { // others are under way, of which the tap would take the next tokens for chosen ones
		return nil
	}
	return s.acceptPrompt()
}

// acceptPrompt shows the prompt to those who look at it too: penalties and reverse prompts.
func (s *slot) acceptPrompt() error {
	for _, token := range s.prompt {
		if err := s.sampler.AcceptPrompt(token); err != nil {
			return err
		}
		s.reverse.add(token)
	}
	return nil
}

// step decodes one batch, the next token of each sequence and parts of prompts, and chooses what follows.
func (p *prompts) step() error {
	if p.ctx.Err() != nil {
		return ErrInterrupted
	}
	p.batch.Reset()
	for _, s := range p.slots {
		if s.busy && s.decoded == len(s.prompt) {
			if err := s.put(p.batch, s.next, true); err != nil {
				return err
			}
		}
	}
	most := p.llama.Batch()
	if p.packs {
		most = p.llama.MicroBatch()
	}
	for _, s := range p.slots.prefills(p.packs, p.llama.Size()) {
		if p.packs && s.generates() && s.decoded == 0 {
			if err := s.acceptPrompt(); err != nil {
				return err
			}
		}
		for s.decoded < len(s.prompt) && p.batch.Len() < most {
			s.decoded++
			last := s.decoded == len(s.prompt) && (s.generates() || !p.packs)
			if err := s.put(p.batch, s.prompt[s.decoded-1], last || p.Config.AllLogits ||
				p.Config.AllRows); err != nil {
				return err
			}
		}
	}
	if err := p.llama.Decode(p.batch); err != nil {
		return err
	}
	if !p.packs || slices.ContainsFunc(p.slots, func(s *slot) bool { return s.busy && s.generates() }) {
		p.llama.Synchronize() // what is computed is read
	}
	for _, s := range p.slots {
		if s.busy && s.decoded == len(s.prompt) {
			if err := p.advance(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// put adds a token of the slot to a batch.
func (s *slot) put(batch *llama.Batch, token llama.Token, output bool) error {
	s.output = batch.Len()
	if s.pos == 0 {
		request := s.begun
		s.begun++
		s.done.Request = &request
	}
	s.pos++
	return batch.Add(token, s.pos-1, output, s.seq)
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
		Pending: s.next, Pos: s.pos, Seq: s.seq, End: llama.Pos(p.llama.SequenceSize()), Pause: p.pauses.find(s),
		Patience: burstTime,
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

// advance chooses the next token of a sequence by the logits that are there, and ends it where there is a reason to.
func (p *prompts) advance(s *slot) error {
	if s.ready.IsZero() {
		s.ready = time.Now()
	}
	limit := s.request.Settings.Predict
	if limit == 0 {
		return p.finish(s, FinishLength)
	}
	token, err := s.sampler.Sample(p.llama, s.output)
	if err == nil {
		err = s.sampler.Accept(token)
	}
	if err != nil {
		return p.fail(s, err)
	}
	if k := s.request.Settings.TopLogprobs; k > 0 {
		logits, err := p.llama.Logits(s.output)
		if err != nil {
			return err
		}
		s.done.Logprobs = append(s.done.Logprobs, logprobs(p.model.Vocab(), logits, token, k))
	}
	return p.chosen(s, token, int64(time.Since(s.begin)))
}

// chosen takes a token that was chosen after so many nanoseconds, and ends the sequence where there is a reason to.
func (p *prompts) chosen(s *slot, token llama.Token, ns int64) error {
	limit := s.request.Settings.Predict
	s.next = token
	s.done.Tokens = append(s.done.Tokens, token)
	s.done.TokenNs = append(s.done.TokenNs, ns)
	before := len(s.text)
	s.text = p.model.Vocab().AppendPiece(s.text, token, s.request.Settings.Special)
	s.reverse.add(token)
	switch {
	case p.model.Vocab().EndsGeneration(token):
		return p.finish(s, FinishStop)
	case s.stopped(before):
		return p.finish(s, FinishWord)
	case s.reverse.found(token):
		return p.finish(s, FinishReverse)
	case len(s.done.Tokens) == limit:
		return p.finish(s, FinishLength)
	case int(s.pos)+1 >= p.llama.SequenceSize():
		return p.finish(s, FinishContext)
	}
	return nil
}

// stopped cuts the text off before the first text of the request's "stop", where one has come up since the text was
// so long.
func (s *slot) stopped(before int) bool {
	end := len(s.text)
	for _, stop := range s.request.Stop {
		from := max(0, before-len(stop)+1)
		if at := bytes.Index(s.text[from:], []byte(stop)); at >= 0 {
			end = min(end, from+at)
		}
	}
	found := end < len(s.text)
	s.text = s.text[:end]
	return found
}

// finish answers a prompt with what was generated, and frees its slot.
func (p *prompts) finish(s *slot, why Finish) error {
	c := s.done
	c.Finish, c.PromptTokens = why, s.decoded
	c.setText(s.text)
	end := time.Now()
	if s.ready.IsZero() {
		s.ready = end
	}
	c.PromptNs, c.GenerationNs = int64(s.ready.Sub(s.begin)), int64(end.Sub(s.ready))
	if c.Tokens == nil {
		c.Tokens, c.TokenNs = []llama.Token{}, []int64{}
	}
	if why != FinishInterrupted {
		p.total.Answered++
	}
	p.total.PromptTokens += s.decoded
	p.total.Tokens += len(c.Tokens)
	return p.release(s, Answer{Completion: &c})
}

// fail answers a line with its error, and prints that.
func (p *prompts) fail(s *slot, why error) error {
	p.total.Failed++
	where := fmt.Sprint("line ", s.line.number)
	if s.request.ID != nil {
		where += fmt.Sprintf(", id %s", s.request.ID)
	}
	fmt.Fprintf(p.Stderr, "llamatap: --prompts %s, %s: %v\n", p.Config.PromptsFile, where, why)
	if p.Config.StopOnError {
		p.in.ended = true
	}
	return p.release(s, Answer{Error: why.Error()})
}

// release hands an answer on and takes the cells of a sequence back.
func (p *prompts) release(s *slot, a Answer) error {
	if s.pos > 0 {
		p.llama.Memory().Remove(s.seq, llama.AllPositions, llama.AllPositions)
	}
	s.close()
	s.busy = false
	p.done = max(p.done, s.line.end)
	a.Line, a.ID = s.line.number, s.request.ID
	return p.answers.add(s.order, a)
}
