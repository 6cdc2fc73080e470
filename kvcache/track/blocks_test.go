package track

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDigests: the hashes of two blocks are those of vLLM's sha256_cbor with PYTHONHASHSEED=0, as Python computes them
// with hashlib and cbor2 (6.3.0). TestKVEvents has more.
func TestDigests(t *testing.T) {
	b := newBlocks(4, "0")
	tokens := []int32{0, 23, 24, 255, 256, 65535, 65536, 151935, 7}
	events := b.change(sequence{}, 0, tokens)
	want := []uint64{771875808201895747, 4421489258622919074}
	if len(events) != 1 || !slices.Equal(events[0].stored, want) || events[0].parent != nil ||
		!slices.Equal(events[0].tokens, tokens[:8]) {
		t.Fatalf("%+v, want %d", events, want)
	}
	const second = "a00e16765098cf2d30bf90a61b546e19e72b1ad35d37a6a03d5c490dfe6ca1a2"
	if d := b.held[sequence{}][1]; hex.EncodeToString(d[:]) != second {
		t.Errorf("%x", d)
	}
}

// TestBlocks changes random sequences at random places. A subscriber that applies the events has the blocks that any
// sequence holds, and hears of no block that it has, and of none without the one before.
func TestBlocks(t *testing.T) {
	const size = 3
	random := rand.New(rand.NewPCG(1, 2))
	b := newBlocks(size, "0")
	all := map[sequence][]int32{}
	has, cleared := map[uint64]bool{}, 0
	for step := range 5000 {
		of := sequence{ctx: uint32(random.IntN(2)), seq: int32(random.IntN(3))}
		tokens := slices.Clone(all[of])
		from := random.IntN(len(tokens) + 1)
		tokens = tokens[:from]
		for range random.IntN(9) {
			tokens = append(tokens, int32(random.IntN(5)/2)-int32(random.IntN(20)/19))
		}
		if random.IntN(20) == 0 || step%500 > 450 { // so that at last nothing is held
			from, tokens = 0, nil
		}
		all[of] = tokens
		for _, e := range b.change(of, from, tokens) {
			switch {
			case len(e.stored) > 0:
				if e.parent != nil && !has[*e.parent] || len(e.tokens) != size*len(e.stored) {
					t.Fatalf("stored %+v", e)
				}
				for _, hash := range e.stored {
					if has[hash] {
						t.Fatalf("%x is stored again", hash)
					}
					has[hash] = true
				}
			case len(e.removed) > 0:
				for _, hash := range e.removed {
					if !has[hash] {
						t.Fatalf("%x is removed, and was not there", hash)
					}
					delete(has, hash)
				}
			default:
				cleared++
				clear(has)
			}
		}
		want := map[uint64]bool{}
		for _, tokens := range all {
			for _, e := range newBlocks(size, "0").change(sequence{}, 0, tokens) {
				for _, hash := range e.stored {
					want[hash] = true
				}
			}
		}
		if !maps.Equal(has, want) {
			t.Fatalf("a subscriber has %d blocks, want %d", len(has), len(want))
		}
	}
	if cleared == 0 || len(b.refs) != len(has) {
		t.Errorf("cleared %d times, %d blocks, %d counted", cleared, len(has), len(b.refs))
	}
}

func BenchmarkChange(b *testing.B) {
	blocks, tokens := newBlocks(16, "0"), make([]int32, 4096)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ { // a sequence grows by a token at a time
		at := n % len(tokens)
		blocks.change(sequence{}, at, tokens[:at+1])
	}
}
