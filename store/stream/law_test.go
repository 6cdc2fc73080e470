package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// forge makes an index of records with right checksums, whatever they say.
func forge(records ...func() (byte, []byte)) []byte {
	h := Header{Major: versionMajor}
	b := h.append(nil)
	chain := binary.LittleEndian.Uint32(b[headerSize-4:])
	for i, make := range records {
		kind, payload := make()
		b, chain = appendRecord(b, kind, uint32(i), chain, payload)
	}
	return b
}

func forgedNode(id uint64) func() (byte, []byte) {
	n := nodeOf(&Packet{Name: "x"})
	return func() (byte, []byte) { return recordNode, n.append(binary.AppendUvarint(nil, id)) }
}

func forgedPacket(node uint64, offset int64) func() (byte, []byte) {
	return func() (byte, []byte) {
		return recordPacket, new(Header).appendPacket(nil, node, &Packet{Offset: offset, Stored: 3})
	}
}

func forgedEnd(packets uint64, bytes int64) func() (byte, []byte) {
	f := Footer{Totals: Totals{Packets: packets, StreamBytes: bytes, Stored: 3 * packets}}
	return func() (byte, []byte) { return recordEnd, f.append(nil) }
}

// A checksum proves that a record is as it was written, not that it makes sense.
func TestLyingRecords(t *testing.T) {
	const size = packetHeader + 1 + 3 // of a forged packet
	for name, c := range map[string]struct {
		records []func() (byte, []byte)
		packets int
		stream  int // bytes, so that nothing is wrong with them
		good    bool
	}{
		"true": {[]func() (byte, []byte){forgedNode(0), forgedPacket(0, 0), forgedPacket(0, size),
			forgedEnd(2, 2*size)}, 2, 2 * size, true},
		"node number":  {[]func() (byte, []byte){forgedNode(1), forgedEnd(0, 0)}, 0, 0, false},
		"node twice":   {[]func() (byte, []byte){forgedNode(0), forgedNode(0), forgedEnd(0, 0)}, 0, 0, false},
		"unknown node": {[]func() (byte, []byte){forgedPacket(0, 0), forgedEnd(0, 0)}, 0, 0, false},
		"gap": {[]func() (byte, []byte){forgedNode(0), forgedPacket(0, 1), forgedEnd(1, 1+size)}, 0, 0,
			false},
		"overlap": {[]func() (byte, []byte){forgedNode(0), forgedPacket(0, 0), forgedPacket(0, 5),
			forgedEnd(2, 5+size)}, 1, size, false},
		"end miscounts": {[]func() (byte, []byte){forgedNode(0), forgedPacket(0, 0), forgedEnd(2, size)}, 1, size,
			false},
		"left over bytes": {[]func() (byte, []byte){func() (byte, []byte) {
			return recordCommit + 1,
				[]byte{0, 0, 0, 0, 0, 0}
		}, forgedEnd(0, 0)}, 0, 0, false},
	} {
		index := forge(c.records...)
		r, err := newMemoryReader(bytes.NewReader(make([]byte, c.stream)), int64(c.stream), index)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if good := len(r.Info().Damage) == 0; good != c.good || r.Len() != c.packets {
			t.Errorf("%s: %d packets, damage %v", name, r.Len(), r.Info().Damage)
		}
	}
}

// A stream that is longer than its index says is noticed, whether the index is whole or not.
func TestUnknownTail(t *testing.T) {
	c := newCapture(2, 2)
	stream, index := c.files(t, Options{Workers: 1})
	longer := append(bytes.Clone(stream), 1, 2, 3)
	if d := open(t, longer, index).Info().Damage; len(d) != 1 || !errors.Is(d[0], ErrCorrupt) {
		t.Errorf("whole index: %v", d)
	}
	x, err := scan(index)
	if err != nil {
		t.Fatal(err)
	}
	cut := index[:recordAt(t, x, 2)] // at a record's end, so that only the missing end shows otherwise
	if d := open(t, stream, cut).Info().Damage; len(d) != 2 || !errors.Is(d[0], ErrTruncated) ||
		!errors.Is(d[1], ErrTruncated) {
		t.Errorf("cut index: %v", d)
	}
}

// pair is two files of which the index must never describe bytes that the stream does not have yet.
type pair struct {
	t             *testing.T
	stream, index bytes.Buffer
	writes        int
}

type (
	pairStream struct {
		discard
		*pair
	}
	pairIndex struct {
		discard
		*pair
	}
)

func (p pairStream) Write(b []byte) (int, error) { return p.stream.Write(b) }

func (p pairIndex) Write(b []byte) (int, error) {
	p.writes++
	p.index.Write(b)
	x, err := scan(p.index.Bytes())
	if err != nil || x.totals.StreamBytes > int64(p.stream.Len()) {
		p.t.Errorf("write %d of the index describes %d bytes, and the stream has %d: %v", p.writes,
			x.totals.StreamBytes, p.stream.Len(), err)
	}
	return len(b), nil
}

func TestStreamIsWrittenFirst(t *testing.T) {
	files := &pair{t: t}
	w, err := New(pairStream{pair: files}, pairIndex{pair: files}, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40_000 { // small packets: the index's buffer is full before the stream's
		if err := w.Append(&Packet{Name: "x", Exec: uint64(i)}, f32(1), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || files.writes < 3 {
		t.Errorf("%d writes of the index, %v", files.writes, err)
	}
}

// once is a File of which one write fails, and the later ones would not.
type once struct {
	memory
	failing int // number of the write that fails
}

func (o *once) Write(b []byte) (int, error) {
	if o.failing--; o.failing == 0 {
		return 0, errFull
	}
	return o.memory.Write(b)
}

// After an error nothing more is written, or else the stream would have a hole.
func TestNothingAfterError(t *testing.T) {
	s, x := &once{memory: *newMemory(), failing: 9}, newMemory()
	w, err := New(s, x, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i := range 400 {
		p := Packet{Name: "x", SrcType: ggmlI32, Exec: uint64(i)}
		if err := w.Append(&p, bytes.Repeat([]byte{byte(i)}, 64<<10), nil); err != nil && !errors.Is(err, errFull) {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil && !errors.Is(err, errFull) {
			t.Fatal(err)
		}
		if i%20 == 19 {
			if err := w.Flush(); err != nil && !errors.Is(err, errFull) {
				t.Fatal(err)
			}
		}
		want = append(append(want, 0, 1, 0, 1, 0, 0, 'x'), bytes.Repeat([]byte{byte(i)}, 64<<10)...)
	}
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
	if !bytes.HasPrefix(want, s.Bytes()) {
		t.Errorf("%d bytes are no beginning of the stream", s.Len())
	}
	if index, err := scan(x.Bytes()); err != nil || index.totals.StreamBytes > int64(s.Len()) || index.footer != nil {
		t.Errorf("the index describes %d bytes, and there are %d; %v", index.totals.StreamBytes, s.Len(), err)
	}
}
