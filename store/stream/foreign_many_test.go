package stream

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestForeignManyPackets: a small stream without an index may hold millions of packets, of which a reader keeps little.
func TestForeignManyPackets(t *testing.T) {
	testenv.Once(t)
	const n, perPacket = 400_000, 64
	packet := []byte{0, 1, 0, 0, 0, 2, 'x', 1, 2}
	data := bytes.Repeat(packet, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := newForeign(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*perPacket {
		t.Errorf("%d packets take %d bytes each", n, kept/n)
	}
	var p Packet
	for _, i := range []int{0, foreignChunk - 1, foreignChunk, n - 1} {
		if err := r.Packet(i, &p); err != nil || p.Offset != int64(i*len(packet)) || p.Name != "x" || p.RawBytes != 2 ||
			p.NE[0] != 1 {
			t.Errorf("packet %d: %+v, %v", i, p, err)
		}
	}
	if total := r.Info().Totals; r.Len() != n || total.Packets != n || total.StreamBytes != int64(len(data)) ||
		len(r.Info().Damage) > 0 {
		t.Errorf("%d packets, %+v, %v", r.Len(), total, r.Info().Damage)
	}
}
