package memtrace

import (
	"encoding/binary"
	"testing"
)

// FuzzMeter takes touches of any bytes in: sums are right whatever they say, and nothing panics or hangs.
func FuzzMeter(f *testing.F) {
	f.Add([]byte("some touches that nobody would make, of regions that nobody has, again and again"))
	seed := make([]byte, 0, 48*64)
	for i := range uint64(64) {
		for _, v := range []uint64{i << 8, i % 3, 64 * (i % 7), 128, i % 5, 512} {
			seed = binary.LittleEndian.AppendUint64(seed, v)
		}
	}
	f.Add(seed)
	f.Fuzz(fuzzed)
}

func fuzzed(t *testing.T, text []byte) {
	m := NewMeter(100, 1<<40)
	m.Declare(1, KVCache, Place{Offset: 64, Bytes: 4096})
	var traffic Traffic
	var footprint Footprint
	var reads, writes int64
	for n := 0; len(text) >= 48 && n < 500; n, text = n+1, text[48:] {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(text[8*i:]) }
		a := Touch{
			NS: int64(word(0)), Op: AccessOp(word(0) % 5), Type: RegionType(word(1) % uint64(regionTypes)),
			Region: int(word(1)>>8%3000) - 1, Buffer: word(1) >> 40,
			Offset: word(2), Size: word(3), Pieces: int64(word(4)), Stride: word(5),
			WindowNS: int64(word(5) >> 60 << 59), Ended: word(4)%2 == 0,
		}
		m.Add(&a)
		traffic.Add(&a, int64(word(0)>>8), -1)
		if a.Size < 1<<30 && a.Pieces < 1<<8 {
			footprint.Add(&a)
		}
		switch a.Op {
		case OpAlloc, OpFree:
		case OpWrite:
			writes++
		default:
			reads++
		}
		m.EndCells(1, int64(word(2)), int64(word(3)), int64(word(4)), a.NS)
	}
	m.Finish(0)
	traffic.Finish()
	for _, kind := range RegionTypes() {
		if k := m.Type(kind); k != nil {
			reads, writes = reads-k.Reads, writes-k.Writes
		}
	}
	if reads != 0 || writes != 0 {
		t.Errorf("%d reads and %d writes are missing", reads, writes)
	}
}
