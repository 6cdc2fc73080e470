package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Every byte comes to the place that the definition says, and back, at all widths and lengths.
func TestShuffle(t *testing.T) {
	src := activations(1000)
	for width := 1; width <= maxWidth; width++ {
		for n := range 200 {
			got := appendShuffled([]byte("ab"), src[:n], width)[2:]
			for i := range n {
				at := i // of what is no whole element
				if element := i / width; element < n/width {
					at = i%width*(n/width) + element
				}
				if got[at] != src[i] {
					t.Fatalf("width %d, %d bytes: byte %d is not at %d", width, n, i, at)
				}
			}
			if back := appendUnshuffled([]byte("ab"), got, width)[2:]; !bytes.Equal(back, src[:n]) {
				t.Fatalf("width %d, %d bytes: not what it was", width, n)
			}
		}
	}
}

func TestZstdShuffle(t *testing.T) {
	half, _, _ := Convert(nil, activations(200<<10), F32, F16)
	half = half[:len(half)-5] // no whole element
	encoder, err := NewEncoder(ZstdShuffle)
	if err != nil {
		t.Fatal(err)
	}
	var decoder Decoder
	var sizes [9]int
	for _, width := range []int{1, 2, 4, 8} {
		packed, err := encoder.AppendElements([]byte("ab"), half, width)
		if err != nil {
			t.Fatal(err)
		}
		sizes[width] = len(packed) - 2
		if got, err := decoder.Append(nil, packed[2:], ZstdShuffle, len(half)); err != nil || !bytes.Equal(got, half) {
			t.Errorf("width %d: %d bytes, %v", width, len(got), err)
		}
	}
	if sizes[2] > sizes[1]*19/20 || sizes[2] > len(half)*9/10 {
		t.Errorf("%d bytes of half-precision values become %d, and %d shuffled", len(half), sizes[1], sizes[2])
	}
	packed, _ := encoder.AppendElements(nil, half, 2)
	first := packed[5 : 5+binary.LittleEndian.Uint32(packed[1:])] // the library's own reader knows the frames
	r, _ := zstd.NewReader(io.MultiReader(bytes.NewReader(first), bytes.NewReader(packed[5+len(first)+4:])))
	if lanes, err := io.ReadAll(r); err != nil || !bytes.Equal(lanes, appendShuffled(nil, half, 2)) {
		t.Errorf("the library finds %d bytes, %v", len(lanes), err)
	}
	for _, bad := range [][]byte{nil, {0}, {9, 1, 2}, append([]byte{0}, packed[1:]...),
		append([]byte{maxWidth + 1}, packed[1:]...), packed[:len(packed)-1], packed[1:]} {
		if _, err := decoder.Append(nil, bad, ZstdShuffle, len(half)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x…: %v", bad[:min(len(bad), 8)], err)
		}
	}
}

func BenchmarkShuffle(b *testing.B) {
	src := activations(64 << 10)
	for _, width := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			var dst []byte
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				dst = appendShuffled(dst[:0], src, width)
			}
		})
	}
}
