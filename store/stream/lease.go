package stream

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/llamatap/llamatap/store/codec"
)

// Lease is one packet's element bytes on loan, little-endian, without a copy where that can be.
type Lease struct {
	// Bytes are the elements, valid until Release. They must not be written to: they may be the file itself.
	Bytes   []byte
	InPlace bool // they are: nothing was copied
	release func()
}

// Release ends the loan. It may be called again, from any goroutine.
func (l *Lease) Release() {
	if l.release != nil {
		l.release()
	}
}

// Lease lends the packet's element bytes, header and checksum verified. Of a packet that is stored as it is, in a
// file that Open opened and the system can map, they lie in the file's memory; nothing is read twice and nothing
// copied. Any other packet is decoded into a buffer of the reader's, as ReadInto does, which later leases use
// again. Close may be called before Release: the memory stays until the last lease is released. A file that
// something else makes shorter under a lease ends the program, as with any mapped file; ReadInto reports that.
func (r *Reader) Lease(p *Packet) (*Lease, error) {
	if r.parts != nil {
		part, own, err := r.holding(p)
		if err != nil {
			return nil, err
		}
		return part.Lease(&own)
	}
	if p.Codec == codec.None && r.file != nil {
		if m := r.mapping.take(r); m != nil {
			return r.leaseInPlace(p, m)
		}
	}
	s := r.borrow()
	raw, err := r.read(p, s.raw[:0], s)
	s.raw = raw
	if err != nil {
		r.scratch.Put(s)
		return nil, err
	}
	return &Lease{Bytes: raw, release: sync.OnceFunc(func() { r.scratch.Put(s) })}, nil
}

func (r *Reader) leaseInPlace(p *Packet, m *mapped) (*Lease, error) {
	size := int64(packetHeader) + int64(len(p.Name)) + p.Stored
	if p.Offset < 0 || p.Stored < 0 || size > int64(len(m.bytes))-p.Offset {
		m.drop()
		return nil, r.at(p, fmt.Errorf("%w: the stream ends at byte %d", ErrTruncated, len(m.bytes)))
	}
	payload, err := r.verified(p, m.bytes[p.Offset:][:size:size])
	if err == nil && p.Stored != p.RawBytes && r.index != nil {
		err = fmt.Errorf("%w: %d bytes stored of %d", ErrCorrupt, p.Stored, p.RawBytes)
	}
	if err != nil {
		m.drop()
		return nil, r.at(p, err)
	}
	return &Lease{Bytes: payload, InPlace: true, release: sync.OnceFunc(m.drop)}, nil
}

// mapping is a reader's file in memory, from the first lease on.
type mapping struct {
	mu    sync.Mutex
	tried bool
	m     *mapped // nil where it cannot be mapped, and after Close
}

// mapped counts who uses the memory; the reader itself is one of them.
type mapped struct {
	bytes []byte
	users atomic.Int64
}

// take maps the file if that was not tried, and counts one user more; nil where it cannot be mapped.
func (g *mapping) take(r *Reader) *mapped {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.tried {
		g.tried = true
		if b, err := mapFile(r.file, r.size); err == nil {
			g.m = &mapped{bytes: b}
			g.m.users.Store(1)
		}
	}
	if g.m != nil {
		g.m.users.Add(1)
	}
	return g.m
}

// close gives up the reader's own share.
func (g *mapping) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m != nil {
		g.m.drop()
		g.m = nil
	}
	g.tried = true
}

func (m *mapped) drop() {
	if m.users.Add(-1) == 0 {
		unmap(m.bytes)
	}
}
