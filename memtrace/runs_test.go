package memtrace

import (
	"math/rand/v2"
	"testing"
)

// TestRunsAgainstBytes compares runs with an array of bytes, over many chunks.
func TestRunsAgainstBytes(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 9))
		var all runs[int]
		const size = 4096
		var bytes [size]int // 0: nothing
		for step := range 4000 {
			start := uint64(r.IntN(size))
			end := start + 1 + uint64(r.IntN(int(min(size-start, 1+uint64(r.IntN(40))))))
			if r.IntN(200) == 0 {
				start, end = uint64(r.IntN(size/2)), size
			}
			value := 1 + r.IntN(3)
			var old []run[int]
			switch r.IntN(4) {
			case 0:
				old = all.cutOut(start, end, nil)
				value = 0
			case 1:
				old = all.get(start, end, nil)
				value = -1
			default:
				old = all.put(start, end, value, nil)
			}
			checkOld(t, seed, bytes[:], old, start, end)
			for at := start; value >= 0 && at < end; at++ {
				bytes[at] = value
			}
			if step%100 == 0 {
				checkOld(t, seed, bytes[:], all.get(0, size, nil), 0, size)
				checkChunks(t, &all)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// checkOld compares what was said of a range with what its bytes are.
func checkOld(t *testing.T, seed uint64, bytes []int, old []run[int], start, end uint64) {
	t.Helper()
	at := start
	for _, g := range old {
		if g.start < at || g.end <= g.start || g.end > end {
			t.Fatalf("seed %d: run %+v at %d of %d to %d", seed, g, at, start, end)
		}
		for ; at < g.start; at++ {
			if bytes[at] != 0 {
				t.Fatalf("seed %d: byte %d is %d, not reported", seed, at, bytes[at])
			}
		}
		for ; at < g.end; at++ {
			if bytes[at] != g.is {
				t.Fatalf("seed %d: byte %d is %d, not %d", seed, at, bytes[at], g.is)
			}
		}
	}
	for ; at < end; at++ {
		if bytes[at] != 0 {
			t.Fatalf("seed %d: byte %d is %d, not reported", seed, at, bytes[at])
		}
	}
}

func checkChunks(t *testing.T, r *runs[int]) {
	t.Helper()
	n := 0
	for _, chunk := range r.chunks {
		if len(chunk) == 0 || len(chunk) > maxChunk {
			t.Errorf("a chunk of %d", len(chunk))
		}
		n += len(chunk)
	}
	if n != r.n {
		t.Errorf("%d runs, counted %d", n, r.n)
	}
}
