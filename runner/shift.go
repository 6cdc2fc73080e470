package runner

import "github.com/llamatap/llamatap/cgo/llama"

// keptTokens is how many tokens from the prompt's begin on stay when the context is shifted: as many as asked for
// and the token that begins a text, or the whole prompt.
func keptTokens(asked, prompt int, addsBegin bool) int {
	switch {
	case asked < 0 || asked > prompt:
		return prompt
	case addsBegin:
		return asked + 1
	}
	return asked
}

// shift makes room in a full context: half of what is not to be kept is forgotten, and what is behind it moves up.
// false: the context is not to be shifted, or its memory cannot be.
func (r *run) shift() bool {
	if !r.shifts || r.Config.Predict == -2 {
		return false
	}
	kept, mem := llama.Pos(r.keep), r.llama.Memory()
	discard := (r.pos - kept) / 2
	mem.Remove(0, kept, kept+discard)
	mem.Shift(0, kept+discard, r.pos, -discard)
	r.pos -= discard
	r.cache.giveUp() // its tokens are the memory's no more
	r.result.Shifts++
	return true
}
