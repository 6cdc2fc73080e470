package perf

import (
	"slices"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

// TestSPE: records are read whole, however a trace is cut; what is no packet is counted, and the next packet read.
func TestSPE(t *testing.T) {
	whole := slices.Concat(
		// a store, ended
		[]byte{0x49, 0x01}, []byte{0xb2, 0, 0x20, 0, 0, 0, 0x7f, 0, 0x4a}, []byte{0x42, 0x04}, []byte{0x98, 7, 0},
		[]byte{0x01},
		// an address of a kind that is not known, after an extended header
		[]byte{0, 0, 0x21, 0xb0, 1, 0, 0, 0, 0, 0, 0, 0},
		[]byte{0x49, 0x00}, []byte{0xb2, 0, 0x30, 0, 0, 0, 0x7f, 0, 0}, []byte{0x52, 0x08, 0x06},
		[]byte{0x71, 9, 0, 0, 0, 0, 0, 0, 0})
	for cut := range len(whole) + 1 {
		var got []speRecord
		each := func(r *speRecord) { got = append(got, *r) }
		used, bad := decodeSPE(whole[:cut], 0, each)
		more, badToo := decodeSPE(whole[used:], uint64(used), each)
		if used+more != len(whole) || bad+badToo != 0 || len(got) != 2 {
			t.Fatalf("cut at %d: %d and %d bytes, %d records", cut, used, more, len(got))
		}
		if got[0].Op != memtrace.OpWrite || got[0].Addr != 0x7f0000002000 || got[0].Latency != 7 ||
			got[0].Level() != memtrace.LevelL1 {
			t.Errorf("%+v", got[0])
		}
		if got[1].Op != memtrace.OpRead || got[1].Timestamp != 9 || got[1].Level() != memtrace.LevelRemoteDRAM {
			t.Errorf("%+v", got[1])
		}
	}
	var n int
	if used, bad := decodeSPE(append([]byte{0xff, 0xfe}, whole...), 0, func(*speRecord) { n++ }); bad != 2 || n != 2 ||
		used != len(whole)+2 {
		t.Errorf("%d records, %d bytes, %d bad", n, used, bad)
	}
}

func TestSPELevels(t *testing.T) {
	for events, want := range map[uint64]memtrace.CacheLevel{
		0: memtrace.LevelUnknown, speL1Access: memtrace.LevelL1, speL1Access | speL1Refill: memtrace.LevelUnknown,
		speL1Access | speL1Refill | speLLAccess: memtrace.LevelL3,
		speLLAccess | speLLMiss:                 memtrace.LevelDRAM, speLLAccess | speRemote: memtrace.LevelRemoteCache,
		speL1Access | speL1Refill | speL2Access:                           memtrace.LevelL2,
		speL1Access | speL1Refill | speL2Access | speL2Miss:               memtrace.LevelUnknown,
		speL1Access | speL1Refill | speL2Access | speL2Miss | speLLAccess: memtrace.LevelL3,
		speL1Access | speL1Refill | speFetched:                            memtrace.LevelLFB,
	} {
		if got := (&speRecord{Events: events}).Level(); got != want {
			t.Errorf("%#x: %v, want %v", events, got, want)
		}
	}
}

func FuzzSPE(f *testing.F) {
	f.Add([]byte{0x49, 1, 0x71, 1, 2, 3, 4, 5, 6, 7, 8, 0x20, 0, 0xb2}, uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, at uint64) {
		if used, bad := decodeSPE(b, at, func(*speRecord) {}); used > len(b) || bad > len(b) {
			t.Errorf("%d bytes, %d bad, of %d", used, bad, len(b))
		}
	})
}
