package runner

import (
	"cmp"
	"slices"
)

// Prompts that generate nothing are packed: as many sequences as have room share a micro-batch, so that it is full
// whatever the prompts' lengths are. They share one cache, too (ContextParams.Unified): llama.cpp cuts a batch of
// sequences with caches of their own into micro-batches of equal shares. A prompt that does not fit ends in the next
// micro-batch. One micro-batch is decoded at a time: a prompt that is done gives its cells back before the next, and
// attention looks at few cells. A prompt whose line asks for text is computed by itself.

// maxPacked is the most prompts in a micro-batch: llama.cpp's LLAMA_MAX_SEQ.
const maxPacked = 256

// generates reports whether text is to follow the prompt.
func (s *slot) generates() bool { return s.request.Settings.Predict != 0 }

// fill reports whether the prompts under way fill a micro-batch.
func (all slots) fill(microBatch int) bool {
	tokens := 0
	for _, s := range all {
		if s.busy && s.generates() {
			return true
		}
		if s.busy {
			tokens += len(s.prompt) - s.decoded
		}
	}
	return tokens >= microBatch
}

// prefills are the slots whose prompts are to be decoded. Packed, the oldest come first, as far as the shared cache has
// room for them.
func (all slots) prefills(packed bool, room int) []*slot {
	var list []*slot
	for _, s := range all {
		if s.busy && s.decoded < len(s.prompt) {
			list = append(list, s)
		}
	}
	if !packed {
		return list
	}
	slices.SortFunc(list, func(a, b *slot) int { return cmp.Compare(a.order, b.order) })
	cells := 0
	for i, s := range list {
		if cells += len(s.prompt); i > 0 && (s.generates() || cells > room) {
			return list[:i]
		}
	}
	return list
}
