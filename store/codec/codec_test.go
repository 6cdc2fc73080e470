package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// activations returns n bytes of float32 as a residual stream has them: normal, with a few large outliers.
func activations(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 0, n)
	for len(b) < n {
		v := float32(r.NormFloat64())
		if r.IntN(500) == 0 {
			v *= 100
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func samples() map[string][]byte {
	text := bytes.Repeat([]byte("the same words, over and over. "), 300)
	return map[string][]byte{
		"empty":       {},
		"one byte":    {42},
		"15 bytes":    text[:15],
		"250 bytes":   text[:250],
		"256 bytes":   text[:256],
		"text":        text,
		"64 KiB":      bytes.Repeat(text, 8)[:64<<10],
		"64 KiB + 1":  bytes.Repeat(text, 8)[:64<<10+1],
		"zeros":       make([]byte, 300<<10),
		"activations": activations(200 << 10),
		"two blocks":  bytes.Repeat(activations(1000), 4300),
	}
}

func TestRoundTrip(t *testing.T) {
	for _, id := range []ID{None, LZ4, Zstd, ZstdShuffle} {
		encoder, err := NewEncoder(id)
		if err != nil {
			t.Fatal(err)
		}
		var decoder Decoder
		for name, src := range samples() {
			t.Run(fmt.Sprint(id, " ", name), func(t *testing.T) {
				packed, err := encoder.Append([]byte("ab"), src)
				if err != nil || string(packed[:2]) != "ab" {
					t.Fatalf("%q %v", packed[:2], err)
				}
				packed = packed[2:]
				if len(packed) > id.Bound(len(src)) {
					t.Errorf("%d bytes became %d, Bound says %d", len(src), len(packed), id.Bound(len(src)))
				}
				if size, ok := Size(packed, id); !ok || size != int64(len(src)) {
					t.Errorf("Size is %d, %v; want %d", size, ok, len(src))
				}
				checkDecode(t, &decoder, id, packed, src)
			})
		}
	}
}

// checkDecode decodes with and without the known size, and with wrong ones, which must be refused.
func checkDecode(t *testing.T, d *Decoder, id ID, packed, want []byte) {
	t.Helper()
	for _, size := range []int{len(want), AnySize} {
		got, err := d.Append([]byte("xy"), packed, id, size)
		if err != nil || string(got[:2]) != "xy" || !bytes.Equal(got[2:], want) {
			t.Fatalf("size %d: %d bytes, %v; want %d", size, len(got), err, len(want))
		}
	}
	for _, size := range []int{len(want) + 1, len(want) - 1, 1 << 50, -5} {
		if size == AnySize {
			continue
		}
		if got, err := d.Append([]byte("xy"), packed, id, size); !errors.Is(err, ErrCorrupt) || string(got) != "xy" {
			t.Errorf("size %d: %d bytes, %v", size, len(got), err)
		}
	}
}

// The libraries' own readers are oracles for our frames.
func TestFramesAreLegal(t *testing.T) {
	for name, src := range samples() {
		for _, id := range []ID{LZ4, Zstd} {
			encoder, _ := NewEncoder(id)
			packed, err := encoder.Append(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			var r io.Reader = lz4.NewReader(bytes.NewReader(packed))
			if id == Zstd {
				r, _ = zstd.NewReader(bytes.NewReader(packed))
			}
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, src) {
				t.Errorf("%v %s: %d bytes, %v; want %d", id, name, len(got), err, len(src))
			}
		}
	}
}

// Legal frames that we do not write: other block sizes, linked blocks are not offered by the library, checksums, no
// size.
func TestForeignLZ4Frames(t *testing.T) {
	src := samples()["two blocks"]
	for _, options := range [][]lz4.Option{
		{lz4.BlockSizeOption(lz4.Block64Kb), lz4.SizeOption(uint64(len(src)))},
		{lz4.BlockSizeOption(lz4.Block256Kb), lz4.ChecksumOption(false)},
		{lz4.BlockChecksumOption(true), lz4.ChecksumOption(true)},
		{lz4.CompressionLevelOption(lz4.Level5)},
	} {
		var packed bytes.Buffer
		w := lz4.NewWriter(&packed)
		if err := w.Apply(options...); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(src); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		checkDecode(t, &Decoder{}, LZ4, packed.Bytes(), src)
	}
}

// A frame with linked blocks, by hand: the second block copies from the first (match of 12 at distance 8).
func TestLinkedLZ4Blocks(t *testing.T) {
	frame := []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0}
	frame[6] = byte(xxh32Short(frame[4:6]) >> 8)
	frame = append(frame, 9, 0, 0, 0, 0x80, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')
	frame = append(frame, 9, 0, 0, 0, 0x08, 8, 0, 0x50, 'v', 'w', 'x', 'y', 'z')
	frame = append(frame, 0, 0, 0, 0)
	checkDecode(t, &Decoder{}, LZ4, frame, []byte("abcdefghabcdefghabcdvwxyz"))
	frame[4] |= lz4FlagIndep
	frame[6] = byte(xxh32Short(frame[4:6]) >> 8)
	if got, err := (&Decoder{}).Append(nil, frame, LZ4, AnySize); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a block that refers to nothing: %q %v", got, err)
	}
}

// Every bit of the descriptor is under its checksum.
func TestLZ4Descriptor(t *testing.T) {
	encoder, _ := NewEncoder(LZ4)
	src := samples()["text"]
	packed, _ := encoder.Append(nil, src)
	for bit := range 8 * lz4HeaderSize {
		bad := bytes.Clone(packed)
		bad[bit/8] ^= 1 << (bit % 8)
		if got, err := (&Decoder{}).Append(nil, bad, LZ4, len(src)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d of byte %d: %d bytes, %v", bit%8, bit/8, len(got), err)
		}
	}
}

// XXH32 of nothing, and of short inputs, from the reference implementation.
func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff} {
		if got := xxh32Short([]byte(in)); got != want {
			t.Errorf("%q: %08x, want %08x", in, got, want)
		}
	}
}

func TestUnknown(t *testing.T) {
	if _, err := NewEncoder(ID(77)); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := (&Decoder{}).Append(nil, nil, ID(77), 0); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := Parse("brotli"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := ParseDType("f8"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for id := None; id.Known(); id++ {
		text, _ := id.MarshalText()
		var back ID
		if err := back.UnmarshalText(text); err != nil || back != id {
			t.Errorf("%v: %v %v", id, back, err)
		}
	}
	for d := Raw; d.Known(); d++ {
		text, _ := d.MarshalText()
		var back DType
		if err := back.UnmarshalText(text); err != nil || back != d {
			t.Errorf("%v: %v %v", d, back, err)
		}
	}
	// ggml.h: F32 0, F16 1, Q4_0 2, I32 26, BF16 30.
	for ggml, want := range map[int]DType{0: F32, 1: F16, 2: Raw, 26: I32, 30: BF16, -1: Raw, 999: Raw} {
		if got := DTypeOf(ggml); got != want {
			t.Errorf("ggml type %d is %v, want %v", ggml, got, want)
		}
	}
}

// A damaged frame must be refused or decode to something of the size asked for; the checksum above the codec does
// the rest.
func FuzzDecode(f *testing.F) {
	for _, id := range []ID{None, LZ4, Zstd, ZstdShuffle} {
		encoder, _ := NewEncoder(id)
		for _, name := range []string{"empty", "text", "250 bytes"} {
			packed, _ := encoder.Append(nil, samples()[name])
			f.Add(uint8(id), packed, len(samples()[name]))
		}
	}
	var decoder Decoder
	f.Fuzz(func(t *testing.T, id uint8, packed []byte, size int) {
		got, err := decoder.Append(nil, packed, ID(id), size)
		if err == nil && size >= 0 && len(got) != size {
			t.Fatalf("%d bytes without error, asked for %d", len(got), size)
		}
		if ID(id).Bounded() {
			return // their size must be known
		}
		if any, anyErr := decoder.Append(nil, packed, ID(id), AnySize); err == nil &&
			(anyErr != nil || !bytes.Equal(any, got)) {
			t.Fatalf("size known: %d bytes; not known: %d bytes, %v", len(got), len(any), anyErr)
		}
	})
}

func TestCodecAllocs(t *testing.T) {
	src := samples()["activations"]
	for _, id := range []ID{None, LZ4, Zstd, ZstdShuffle} {
		encoder, _ := NewEncoder(id)
		var decoder Decoder
		var packed, raw []byte
		run := func() {
			packed, _ = encoder.AppendElements(packed[:0], src, 4)
			raw, _ = decoder.Append(raw[:0], packed, id, len(src))
		}
		run()
		if n := testing.AllocsPerRun(20, run); n != 0 {
			t.Errorf("%v: %v allocations per round", id, n)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20} {
		src, _, _ := Convert(nil, activations(2*size), F32, F16)
		for _, id := range []ID{LZ4, Zstd, ZstdShuffle} {
			encoder, _ := NewEncoder(id)
			b.Run(fmt.Sprintf("%v/%dKiB", id, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(src)))
				b.ReportAllocs()
				var dst []byte
				for b.Loop() {
					dst, _ = encoder.AppendElements(dst[:0], src, 2)
				}
				b.ReportMetric(float64(len(src))/float64(len(dst)), "ratio")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	src, _, _ := Convert(nil, activations(2<<20), F32, F16)
	for _, id := range []ID{LZ4, Zstd, ZstdShuffle} {
		encoder, _ := NewEncoder(id)
		packed, _ := encoder.AppendElements(nil, src, 2)
		b.Run(id.String(), func(b *testing.B) {
			var decoder Decoder
			var dst []byte
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = decoder.Append(dst[:0], packed, id, len(src))
			}
		})
	}
}

// The size of rows stands in their head.
func TestSizeOfRows(t *testing.T) {
	for _, id := range []ID{Q, QFSE} {
		e, err := NewEncoder(id)
		if err == nil {
			err = e.SetBound(Bound{Error: 1e-3})
		}
		if err != nil {
			t.Fatal(err)
		}
		packed, _, err := e.AppendRows(nil, make([]byte, 4*300*7), 300)
		if err != nil {
			t.Fatal(err)
		}
		if size, ok := Size(packed[:min(32, len(packed))], id); !ok || size != 4*300*7 {
			t.Errorf("%v: %d, %v", id, size, ok)
		}
		if _, ok := Size(packed[:14], id); ok {
			t.Errorf("%v: a size of no rows", id)
		}
	}
}
