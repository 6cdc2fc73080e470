package stream

import (
	"bytes"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// TestJoin compares joined readers of two halves with a reader of each: numbers, offsets, data and sums go on.
func TestJoin(t *testing.T) {
	c := newCapture(5, 4)
	half := 12 // packets: three executions
	first := &capture{c.packets[:half], c.data[:half], c.executions[:3]}
	second := &capture{c.packets[half:], c.data[half:], c.executions[3:]}
	s1, x1 := first.files(t, Options{Codec: codec.Zstd})
	s2, x2 := second.files(t, Options{Codec: codec.LZ4})
	joined := Join(open(t, s1, x1), open(t, s2, x2))
	if joined.Len() != 20 || joined.Info().Totals.Packets != 20 || joined.Info().
		Totals.StreamBytes != int64(len(s1)+len(s2)) ||
		len(joined.Info().Damage) != 0 {
		t.Fatalf("%d packets, %+v, damage %v", joined.Len(), joined.Info().Totals, joined.Info().Damage)
	}
	if err := joined.Verify(nil); err != nil {
		t.Error(err)
	}
	parts, last := []*Reader{open(t, s1, x1), open(t, s2, x2)}, int64(-1)
	for i, p := range joined.Packets() {
		part, k := parts[0], i
		if i >= half {
			part, k = parts[1], i-half
		}
		var own Packet
		if err := part.Packet(k, &own); err != nil {
			t.Fatal(err)
		}
		want, err := part.ReadInto(&own, nil)
		got, gotErr := joined.ReadInto(p, nil)
		if err != nil || gotErr != nil || !bytes.Equal(got, want) || p.Name != own.Name || p.Offset <= last {
			t.Fatalf("packet %d: %v, %v: % x, want % x", i, err, gotErr, got, want)
		}
		last = p.Offset
	}
	var seen []uint64
	for e := range joined.Executions() {
		seen = append(seen, e.Exec)
		if rows, ok := joined.Rows(e.Exec); !ok || len(rows) != 1 {
			t.Errorf("rows of execution %d: %v", e.Exec, rows)
		}
	}
	if len(seen) != 5 || seen[0] != 10 || seen[4] != 14 {
		t.Errorf("executions %v", seen)
	}
	if l := joined.Info().Losses; len(l) != 1 || l[0].Packets != 6 || l[0].Bytes != 300 {
		t.Errorf("losses %+v", l)
	}
	var p Packet
	if joined.Packet(20, &p) == nil || joined.Packet(-1, &p) == nil {
		t.Error("a packet that is not there")
	}
	if values, err := joined.Float32(&p, nil); err == nil {
		t.Errorf("values of no packet: %v", values)
	}
	if err := joined.Close(); err != nil {
		t.Error(err)
	}
}

// TestJoinTellsDamage says which stream is hurt.
func TestJoinTellsDamage(t *testing.T) {
	s, x := newCapture(3, 3).files(t, Options{})
	joined := Join(open(t, s, x), open(t, s[:len(s)-1], x))
	if d := joined.Info().Damage; len(d) != 1 || !bytes.Contains([]byte(d[0].Error()), []byte("stream 2 of 2")) {
		t.Errorf("%v", d)
	}
}
