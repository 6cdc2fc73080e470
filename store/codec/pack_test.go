package codec

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestPackEights: groups of eight are packed as single values are, in every width, and nothing after the room is
// touched.
func TestPackEights(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for width := 1; width <= qMaxWidth; width++ {
		for _, n := range []int{1, 7, 8, 9, 16, 31, 255, 256} {
			q := make([]int32, n)
			for i := range q {
				q[i] = int32(r.Uint32()) >> (32 - width)
			}
			size := (n*width + 7) / 8
			want, got := make([]byte, size+8), bytes.Repeat([]byte{0xa5}, size+16)
			packPlain(want, q, width)
			pack(got[:size:size+8], q, width)
			if !bytes.Equal(got[:size], want[:size]) {
				t.Errorf("%d values of %d bits: %x, want %x", n, width, got[:size], want[:size])
			}
			if width <= 16 && n >= 8 {
				eights := make([]byte, size+8)
				done := packEights(eights, q, width)
				if size := done * width / 8; done != n/8*8 || !bytes.Equal(eights[:size], want[:size]) {
					t.Errorf("%d values of %d bits, plain: %x, want %x", n, width, eights[:size], want[:size])
				}
			}
			if !bytes.Equal(got[size+8:], bytes.Repeat([]byte{0xa5}, 8)) {
				t.Errorf("%d values of %d bits: wrote past the room", n, width)
			}
			back := make([]int32, n)
			unpack(back, got[:size], width, true)
			for i := range q {
				if back[i] != q[i] {
					t.Fatalf("%d values of %d bits: value %d is %d, want %d", n, width, i, back[i], q[i])
				}
			}
		}
	}
}
