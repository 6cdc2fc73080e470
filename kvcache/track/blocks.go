package track

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// A digest is the hash of a block and of all tokens before it: vLLM's sha256_cbor.
type digest [sha256.Size]byte

// external is the form in which events have it, as vLLM's do: the last 64 bits.
func (d *digest) external() uint64 { return binary.BigEndian.Uint64(d[len(d)-8:]) }

// rootDigest is what a first block has in place of the block before: the hash of a text, as of PYTHONHASHSEED.
func rootDigest(seed string) digest {
	return sha256.Sum256(append(cborHead(nil, 3, uint64(len(seed))), seed...))
}

// blockDigest is that of [parent, [tokens …], null] in CBOR. It uses the buffer's room.
func blockDigest(parent *digest, tokens []int32, buffer []byte) (digest, []byte) {
	b := append(cborHead(append(buffer[:0], 0x83), 2, sha256.Size), parent[:]...)
	b = cborHead(b, 4, uint64(len(tokens)))
	for _, token := range tokens {
		b = cborHead(b, 0, uint64(token))
	}
	b = append(b, 0xf6)
	return sha256.Sum256(b), b
}

// cborHead appends the type of an item of CBOR (RFC 8949, 3) with its argument, in the fewest bytes.
func cborHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= 0xff:
		return append(b, major|24, byte(n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= 0xffffffff:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// event is a change of the set of blocks that any sequence holds: blocks that follow one another are stored, or blocks
// are removed, or, without either, the last ones are.
type event struct {
	stored, removed []uint64
	parent          *uint64 // of the first stored block; nil: it is a sequence's first
	tokens          []int32 // of all stored blocks
}

// blocks follows which full blocks sequences hold. It is for one goroutine.
type blocks struct {
	size   int
	root   digest
	held   map[sequence][]digest
	refs   map[digest]int // how many sequences hold it
	buffer []byte
}

// sequence is one of a context.
type sequence struct {
	ctx uint32
	seq int32
}

func newBlocks(size int, seed string) *blocks {
	return &blocks{size: size, root: rootDigest(seed), held: map[sequence][]digest{}, refs: map[digest]int{}}
}

// change takes in the tokens of a sequence, by position from 0, of which those before from are what they were. Tokens
// below 0 are unknown or not there: blocks end before them.
func (b *blocks) change(of sequence, from int, tokens []int32) (events []event) {
	old := b.held[of]
	keep := min(from/b.size, len(old), len(tokens)/b.size)
	now := old
	if keep < len(old) {
		now = slices.Clone(old[:keep])
	}
	for at := keep * b.size; at+b.size <= len(tokens); at += b.size {
		block := tokens[at : at+b.size]
		if slices.Min(block) < 0 {
			break
		}
		parent := &b.root
		if n := len(now); n > 0 {
			parent = &now[n-1]
		}
		var d digest
		d, b.buffer = blockDigest(parent, block, b.buffer)
		now = append(now, d)
		if n := len(now); n <= len(old) && old[n-1] == d {
			keep = n
		}
	}
	if removed := b.release(old[keep:]); len(removed) > 0 {
		events = append(events, event{removed: removed})
	}
	events = b.acquire(events, now, keep, tokens)
	if b.held[of] = now; len(now) == 0 {
		delete(b.held, of)
	}
	if len(b.refs) == 0 && len(events) > 0 {
		return []event{{}}
	}
	return events
}

// release takes blocks from a sequence and returns those that no other one holds.
func (b *blocks) release(list []digest) (removed []uint64) {
	for i := range list {
		if b.refs[list[i]]--; b.refs[list[i]] == 0 {
			delete(b.refs, list[i])
			removed = append(removed, list[i].external())
		}
	}
	return removed
}

// acquire gives a sequence its blocks from number first on, and adds those that no other one holds to the events.
func (b *blocks) acquire(events []event, now []digest, first int, tokens []int32) []event {
	last := -1 // the block that was added last
	for i := first; i < len(now); i++ {
		if b.refs[now[i]]++; b.refs[now[i]] > 1 {
			continue
		}
		if last < 0 || last != i-1 {
			e := event{}
			if i > 0 {
				e.parent = new(now[i-1].external())
			}
			events = append(events, e)
		}
		last = i
		e := &events[len(events)-1]
		e.stored = append(e.stored, now[i].external())
		e.tokens = append(e.tokens, tokens[i*b.size:(i+1)*b.size]...)
	}
	return events
}
