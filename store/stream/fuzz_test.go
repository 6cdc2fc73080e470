package stream

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

func normal(size int) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 0, size)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// readEverything calls all that a reader offers; nothing may panic, and all errors must be of the known kinds.
func readEverything(t *testing.T, r *Reader) {
	for i, p := range r.Packets() {
		if _, err := r.ReadInto(p, nil); err != nil && !reported(err) {
			t.Fatalf("packet %d: %v", i, err)
		}
		_, _ = r.Float32(p, nil)
	}
	for e := range r.Executions() {
		r.Rows(e.Exec)
	}
	r.Info()
	_ = r.Verify(nil)
}

// reseal makes checksums right again after a fuzzer changed payloads, so that the fuzzer gets past them.
func reseal(index []byte) []byte {
	index = bytes.Clone(index)
	if len(index) < headerSize {
		return index
	}
	copy(index, indexMagic)
	binary.LittleEndian.PutUint16(index[8:], versionMajor)
	binary.LittleEndian.PutUint32(index[12:], headerSize)
	chain := checksum(index[:headerSize-4])
	binary.LittleEndian.PutUint32(index[headerSize-4:], chain)
	out := index[:headerSize:headerSize]
	for at, sequence := headerSize, uint32(0); ; sequence++ {
		r, ok := parseRecord(index[at:])
		if !ok {
			return append(out, index[at:]...)
		}
		payload := r.payload
		if n := len(payload) - endTrailer; r.kind == recordEnd && n >= 0 {
			payload = bytes.Clone(payload)
			binary.LittleEndian.PutUint32(payload[n:], checksum(payload[:n]))
			binary.LittleEndian.PutUint32(payload[n+4:], uint32(recordHeader+len(payload)))
			copy(payload[n+8:], endMagic)
		}
		out, chain = appendRecord(out, r.kind, sequence, chain, payload)
		at += r.size()
	}
}

func FuzzIndex(f *testing.F) {
	stream, index := newCapture(3, 3).files(f, Options{Workers: 1, Codec: codec.LZ4})
	f.Add(index, true)
	f.Add(index[:200], false)
	f.Fuzz(func(t *testing.T, index []byte, repair bool) {
		if repair {
			index = reseal(index)
		}
		r, err := newMemoryReader(bytes.NewReader(stream), int64(len(stream)), index)
		if err != nil {
			if !reported(err) {
				t.Fatal(err)
			}
			return
		}
		readEverything(t, r)
	})
}

func FuzzStream(f *testing.F) {
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
		stream, _ := newCapture(2, 1).files(f, Options{Workers: 1, Codec: id})
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, err := newForeign(bytes.NewReader(stream), int64(len(stream)))
		if err != nil {
			t.Fatal(err)
		}
		readEverything(t, r)
	})
}
