package perf

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestRingWraps writes records of many sizes around a small ring, as the kernel does, and reads them back.
func TestRingWraps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 512)
	ring := newRing(data, 0)
	var head uint64
	var waiting [][]byte
	torn := 0
	for i := range 5000 {
		raw := record(recordSample, uint16(i), make([]byte, 8*rng.IntN(20)))
		for j := headerSize; j < len(raw); j++ {
			raw[j] = byte(i + j)
		}
		for head+uint64(len(raw))-ring.Tail() > uint64(len(data)) || len(waiting) > 0 && rng.IntN(4) == 0 {
			got, err := ring.Next(head)
			if err != nil || !bytes.Equal(got, waiting[0]) {
				t.Fatalf("record %d: %x, want %x: %v", i, got, waiting[0], err)
			}
			waiting = waiting[1:]
		}
		if head%512+uint64(len(raw)) > 512 {
			torn++
		}
		for j, b := range raw {
			data[(head+uint64(j))%512] = b
		}
		head += uint64(len(raw))
		waiting = append(waiting, raw)
	}
	if torn < 100 {
		t.Errorf("only %d records were torn", torn)
	}
}

func TestRingBroken(t *testing.T) {
	for what, c := range map[string]struct {
		raw  []byte
		head uint64
	}{
		"no size":       {make([]byte, 64), 64},
		"beyond head":   {append(record(recordSample, 0, make([]byte, 24)), make([]byte, 32)...), 16},
		"odd size":      {append(record(recordSample, 0, make([]byte, 3)), make([]byte, 53)...), 24},
		"half a header": {make([]byte, 64), 4},
		"too much":      {make([]byte, 64), 72},
	} {
		ring := newRing(c.raw, 0)
		if b, err := ring.Next(c.head); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %x, %v", what, b, err)
		}
		ring.Skip(c.head)
		if b, err := ring.Next(c.head); b != nil || err != nil {
			t.Errorf("%s: after it: %x, %v", what, b, err)
		}
	}
}

func FuzzRing(f *testing.F) {
	f.Add(record(recordSample, 0, words(1, 2, 3)), uint16(32), uint16(0))
	f.Fuzz(func(t *testing.T, raw []byte, n, tail uint16) {
		data := make([]byte, 256)
		copy(data, raw)
		ring := newRing(data, uint64(tail)&^7)
		for head := ring.Tail() + uint64(n); ; {
			b, err := ring.Next(head)
			if err != nil || b == nil {
				return
			}
			if len(b) < headerSize || len(b) > len(data) {
				t.Fatalf("a record of %d bytes", len(b))
			}
		}
	})
}
