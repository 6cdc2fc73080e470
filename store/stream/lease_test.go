package stream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// countingReader counts the reads of a stream.
type countingReader struct {
	io.ReaderAt
	reads atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, at int64) (int, error) {
	c.reads.Add(1)
	return c.ReaderAt.ReadAt(p, at)
}

// TestOneReadPerTensor holds that opening a stream reads nothing of it, and each tensor, wherever it lies, takes
// one read.
func TestOneReadPerTensor(t *testing.T) {
	c := newCapture(20, 3)
	for _, id := range []codec.ID{codec.None, codec.Zstd} {
		stream, index := c.files(t, Options{Codec: id})
		file := &countingReader{ReaderAt: bytes.NewReader(stream)}
		r, err := NewReader(file, int64(len(stream)), index)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		for _, i := range []int{r.Len() - 1, 0, r.Len() / 2} {
			before := file.reads.Load()
			if err := r.Packet(i, &p); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadInto(&p, nil); err != nil {
				t.Fatal(err)
			}
			if n := file.reads.Load() - before; n != 1 {
				t.Errorf("%v, packet %d: %d reads", id, i, n)
			}
		}
		if n := file.reads.Load(); n != 3 {
			t.Errorf("%v: %d reads for three tensors", id, n)
		}
	}
}

// TestLease compares what is lent with what ReadInto reads, before and after Close, and looks whether it was copied.
func TestLease(t *testing.T) {
	c := newCapture(10, 3)
	for _, id := range []codec.ID{codec.None, codec.Zstd} {
		stream, index := c.files(t, Options{Codec: id})
		var parts []*Reader
		for range 2 {
			path := filepath.Join(t.TempDir(), "a.stream")
			writeFiles(t, path, stream, index)
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, r)
		}
		r := Join(parts...)
		var wants [][]byte
		var lent []*Lease
		for i, p := range r.Packets() {
			want, err := r.ReadInto(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := r.Lease(p)
			if err != nil {
				t.Fatalf("packet %d: %v", i, err)
			}
			if l.InPlace && p.Codec != codec.None {
				t.Fatalf("packet %d with codec %v is lent in place", i, p.Codec)
			}
			wants, lent = append(wants, want), append(lent, l)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for i, l := range lent {
			if !bytes.Equal(l.Bytes, wants[i]) {
				t.Fatalf("%v, packet %d: lent bytes are not those that are read", id, i)
			}
			l.Release()
			l.Release()
		}
		for _, part := range parts {
			if part.mapping.m != nil {
				t.Error("a closed reader holds its file's memory")
			}
		}
	}
}

// TestLeaseInPlace holds that an uncompressed packet is lent without a copy where files can be mapped, and that the
// file's memory is given back with the last lease.
func TestLeaseInPlace(t *testing.T) {
	stream, index := newCapture(4, 2).files(t, Options{Codec: codec.None})
	path := filepath.Join(t.TempDir(), "a.stream")
	writeFiles(t, path, stream, index)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if b, err := mapFile(file, r.size); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("files cannot be mapped on this system")
	} else {
		unmap(b)
	}
	var p Packet
	if err := r.Packet(0, &p); err != nil {
		t.Fatal(err)
	}
	a, err := r.Lease(&p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Lease(&p)
	if err != nil {
		t.Fatal(err)
	}
	if !a.InPlace || !b.InPlace || len(a.Bytes) == 0 || &a.Bytes[0] != &b.Bytes[0] {
		t.Fatal("two leases of a packet are not the same memory")
	}
	m := r.mapping.m
	r.Close()
	a.Release()
	if n := m.users.Load(); n != 1 {
		t.Errorf("%d users of the memory while one lease is left", n)
	}
	b.Release()
	if n := m.users.Load(); n != 0 {
		t.Errorf("%d users of the memory when all leases are released", n)
	}
}

// TestLeaseOfDamage holds that a damaged packet is refused, in place too.
func TestLeaseOfDamage(t *testing.T) {
	stream, index := newCapture(4, 2).files(t, Options{Codec: codec.None})
	path := filepath.Join(t.TempDir(), "a.stream")
	whole := open(t, stream, index)
	var p Packet
	if err := whole.Packet(1, &p); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{p.Offset, p.Offset + packetHeader, p.Offset + packetHeader + int64(len(p.Name))} {
		bad := bytes.Clone(stream)
		bad[at] ^= 1
		writeFiles(t, path, bad, index)
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Lease(&p); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d is damaged: %v", at, err)
		}
		r.Close()
	}
}
