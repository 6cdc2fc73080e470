package track

import "slices"

// unknownToken stands where it is not known which token a position has, or none is there.
const unknownToken = -2

// cells are the tokens that a sequence has in the memory, by position.
type cells []int32

// set puts a token at a position.
func (c *cells) set(pos, token int32) {
	if pos < 0 {
		return
	}
	for int(pos) > len(*c) {
		*c = append(*c, unknownToken)
	}
	if int(pos) == len(*c) {
		*c = append(*c, token)
	} else {
		(*c)[pos] = token
	}
}

// span is first ≤ position < end, within what there is. Below 0 they mean the start and the end.
func (c cells) span(first, end int32) (int, int) {
	if end < 0 || int(end) > len(c) {
		end = int32(len(c))
	}
	return int(min(max(first, 0), end)), int(end)
}

// remove takes positions out and returns how many there were.
func (c *cells) remove(first, end int32) (n int64) {
	from, to := c.span(first, end)
	for i := from; i < to; i++ {
		if (*c)[i] != unknownToken {
			n++
		}
		(*c)[i] = unknownToken
	}
	if to == len(*c) {
		*c = (*c)[:from]
	}
	return n
}

// move changes positions by delta.
func (c *cells) move(first, end, delta int32) {
	from, to := c.span(first, end)
	moved := slices.Clone((*c)[from:to])
	c.remove(first, end)
	for i, token := range moved {
		if token != unknownToken {
			c.set(int32(from+i)+delta, token)
		}
	}
}

// common is how many tokens two sequences begin with alike.
func common(a, b []int32) (n int64) {
	for int(n) < len(a) && int(n) < len(b) && a[n] == b[n] && a[n] != unknownToken {
		n++
	}
	return n
}

// Bounds of the tokens of sequences that are remembered: after they left the memory, of which an entry counts keptEntry
// more (4 MiB), and while a program keeps them in its own (16 MiB).
const (
	maxKept   = 1 << 20
	keptEntry = 32
	maxSaved  = 4 << 20
)

// lost is what a sequence held when cells of it were removed.
type lost struct {
	tokens []int32
	kept   int32 // of them, the first so many were not removed
	seq    int32
	atNS   int64
	by     int64 // request; -1: unknown
	shift  bool
}

// history is what left the memory of a context, oldest first.
type history struct {
	all  []entry
	size int
}

// entry is what lost has, with what best reads of each.
type entry struct {
	*lost
	tokens []int32
	kept   int32
}

func (h *history) add(l *lost) {
	h.all = append(h.all, entry{l, l.tokens, l.kept})
	for h.size += len(l.tokens) + keptEntry; h.size > maxKept; {
		h.size -= len(h.all[0].tokens) + keptEntry
		h.all[0] = entry{}
		h.all = h.all[1:]
	}
}

// best is the entry that begins with the most tokens of a prompt, the newest of several, of those that took the one at
// a position; nil: none. A server's prompts begin alike: an entry is compared if it has the token that a better one
// has.
func (h *history) best(prompt []int32, pos int64) (found *lost, n int64) {
	n = max(pos, 0)
	for i := len(h.all) - 1; i >= 0 && n < int64(len(prompt)); i-- {
		if e := &h.all[i]; int64(e.kept) <= pos && n < int64(len(e.tokens)) && e.tokens[n] == prompt[n] {
			if same := common(e.tokens, prompt); same > n {
				found, n = e.lost, same
			}
		}
	}
	if found == nil {
		return nil, 0
	}
	return found, n
}

// saves are states of sequences that a program copied to its own memory, by address.
type saves struct {
	tokens map[uint64][]int32
	order  []uint64
	size   int
}

func (s *saves) put(key uint64, tokens []int32) {
	if s.tokens == nil {
		s.tokens = map[uint64][]int32{}
	}
	s.drop(key)
	s.tokens[key], s.order, s.size = slices.Clone(tokens), append(s.order, key), s.size+len(tokens)
	for s.size > maxSaved {
		s.drop(s.order[0])
	}
}

func (s *saves) drop(key uint64) {
	if tokens, ok := s.tokens[key]; ok {
		s.size -= len(tokens)
		delete(s.tokens, key)
		s.order = slices.DeleteFunc(s.order, func(k uint64) bool { return k == key })
	}
}
