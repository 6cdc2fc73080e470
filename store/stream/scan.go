package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/llamatap/llamatap/store/label"
)

// index is what is known of an index file: what many of its records refer to, and where the others lie in it.
type index struct {
	header      Header
	in          io.ReaderAt
	size        int64
	slim        bool // of packets, executions and requests nothing is noted but their totals
	nodes       []node
	lost        []bool // nodes whose record is missing
	pages       *pages // of packets and executions
	losses      []Loss
	resolutions []Resolution
	loads       []StateLoad
	requests    map[requestKey][]requestAt // begins, in order
	gaps        []int64                    // where records are missing
	repairs     []Gap
	missing     uint64 // records of the last such place
	end         int64  // of what was read
	torn        int64  // bytes of it at the end that are not a whole record
	// unless nil: called with every sound record, and with an empty one where some are missing
	each   func(r record, at int64)
	totals Totals // of what was read
	footer *Footer

	damage  []error
	corrupt bool // in the middle
}

// requestKey names the sequence whose requests are counted.
type requestKey struct {
	ctx uint32
	seq int32
}

type requestAt struct {
	at     int64
	number int32
}

// newIndex is an index of which nothing was read yet.
func newIndex(h Header, in io.ReaderAt, size int64) *index {
	return &index{header: h, in: in, size: size, pages: newPages(in), requests: map[requestKey][]requestAt{}}
}

// scanFile reads all records of an index. Only an unreadable file or header and a version that this program does
// not know are errors; what else is wrong goes to damage.
func scanFile(in io.ReaderAt, size int64) (*index, error) {
	head := make([]byte, min(size, headerSize))
	if err := readAt(in, head, 0); err != nil {
		return nil, fmt.Errorf("index header: %w", err)
	}
	h, chain, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	x := newIndex(h, in, size)
	return x, x.scan(chain)
}

func (x *index) scan(chain uint32) error {
	src := &source{in: x.in, size: x.size}
	at, sequence := int64(headerSize), uint32(0)
	for at < x.size && x.footer == nil {
		r, ok := src.record(at)
		if !ok || r.sequence != sequence || !r.follows(chain) {
			next := src.resync(at, sequence, chain)
			if src.err != nil {
				break
			}
			if !next.found {
				x.hurt(fmt.Errorf("index: %w: the last %d bytes, from byte %d, are not a whole record", ErrTruncated,
					x.size-at, at))
				x.torn, at = x.size-at, x.size
				break
			}
			x.missing = uint64(next.sequence - sequence)
			x.lose(at)
			x.hurt(fmt.Errorf("index: %w: bytes %d to %d, %d records", ErrCorrupt, at, next.at-1,
				next.sequence-sequence))
			at, sequence, chain = next.at, next.sequence, next.chain
			continue
		}
		r.chain = chain
		if err := x.addRecord(r, at); err != nil {
			if errors.Is(err, ErrVersion) {
				return fmt.Errorf("index: record at byte %d: %w", at, err)
			}
			x.missing = 1
			x.lose(at)
			x.hurt(fmt.Errorf("index: %w: record at byte %d: %w", ErrCorrupt, at, err))
		} else if x.each != nil {
			x.each(r, at)
		}
		at, sequence, chain = at+int64(r.size()), sequence+1, r.crc
	}
	if src.err != nil {
		return fmt.Errorf("read index: %w", src.err)
	}
	x.finish(at)
	return nil
}

// lose notes that records are missing at a place in the middle.
func (x *index) lose(at int64) {
	x.corrupt, x.gaps = true, append(x.gaps, at)
	if x.each != nil {
		x.each(record{}, at)
	}
}

func (x *index) hurt(err error) { x.damage = append(x.damage, err) }

// finish judges the index as a whole.
func (x *index) finish(end int64) {
	x.end = end
	switch {
	case x.footer == nil:
		x.hurt(fmt.Errorf("index: %w: no end record, its writer was stopped", ErrTruncated))
	case end < x.size:
		x.hurt(fmt.Errorf("index: %w: %d bytes behind the end record", ErrCorrupt, x.size-end))
	case !x.corrupt && x.footer.Totals != x.totals:
		x.hurt(fmt.Errorf("index: %w: the end record counts %+v, the records are %+v", ErrCorrupt, x.footer.Totals,
			x.totals))
	}
	x.pages.finish()
}

// addRecord adds a record whose checksum is right.
func (x *index) addRecord(r record, at int64) error {
	packets := x.totals.Packets
	err := x.takeKind(r, at)
	if err == nil && !x.slim {
		x.pages.add(r, at, packets)
	}
	return err
}

func (x *index) takeKind(r record, at int64) error {
	switch r.kind {
	case recordNode:
		return x.takeNode(r.payload)
	case recordPacket:
		return x.takePacket(r.payload)
	case recordExecution:
		e, err := x.header.readExecution(r.payload)
		if err != nil {
			return err
		}
		x.totals.Executions++
		x.totals.Rows += uint64(len(e.Rows))
	case recordCommit:
		x.totals.Commits++
	case recordLoss:
		c := cursor{b: r.payload}
		l := readLoss(&c)
		if c.done() != nil {
			return c.done()
		}
		x.losses = addLoss(x.losses, l)
	case recordResolution:
		resolution, err := readResolution(r.payload)
		if err != nil {
			return err
		}
		x.resolutions = append(x.resolutions, resolution)
	case recordRequest:
		b, err := readRequest(r.payload)
		if err != nil {
			return err
		}
		if x.slim {
			break
		}
		key := requestKey{b.Ctx, b.Seq}
		x.requests[key] = append(x.requests[key], requestAt{at, b.Number})
	case recordText:
		_, err := readText(r.payload)
		return err
	case recordStateLoad:
		l, err := x.header.readStateLoad(r.payload)
		if err != nil {
			return err
		}
		if !x.slim {
			x.loads = append(x.loads, l)
		}
	case recordGap:
		return x.takeGap(r.payload, at)
	case recordEnd:
		f, err := readFooter(r.payload)
		if err != nil {
			return err
		}
		x.footer = f
	default:
		if r.kind < recordOptional {
			return fmt.Errorf("record type %d: %w: use a newer program", r.kind, ErrVersion)
		}
	}
	return nil
}

func (x *index) takeNode(payload []byte) error {
	c := cursor{b: payload}
	id := c.uint()
	n := readNode(&c)
	if err := c.done(); err != nil {
		return err
	}
	known := uint64(len(x.nodes))
	if id < known || id > known && (!x.corrupt || id-known > uint64(x.size/recordHeader)) {
		return fmt.Errorf("%w: node %d after %d nodes", errField, id, known)
	}
	for uint64(len(x.nodes)) < id {
		x.nodes, x.lost = append(x.nodes, node{}), append(x.lost, true)
	}
	x.nodes, x.lost = append(x.nodes, n), append(x.lost, false)
	return nil
}

func (x *index) takePacket(payload []byte) error {
	var p Packet
	if err := x.header.readPacket(payload, x.nodes, x.lost, &p); err != nil {
		return err
	}
	if p.Offset < x.totals.StreamBytes || p.Offset > x.totals.StreamBytes && !x.corrupt {
		return fmt.Errorf("%w: packet at byte %d of the stream, where the one before it ends at %d", errField, p.Offset,
			x.totals.StreamBytes)
	}
	x.totals.addPacket(&p)
	return nil
}

// packet fills p with packet i.
func (x *index) packet(i int, p *Packet) error {
	x.pages.mu.Lock()
	r, _, err := x.pages.packet(i)
	if err == nil {
		err = x.header.readPacket(r.payload, x.nodes, x.lost, p)
	}
	x.pages.mu.Unlock()
	if err != nil {
		return err
	}
	p.Phase = x.phase(p.Ctx, p.Exec, p.Phase)
	return nil
}

// executionOf reads an execution by its number; false if there is none.
func (x *index) executionOf(exec uint64) (e Execution, found bool, err error) {
	x.pages.mu.Lock()
	defer x.pages.mu.Unlock()
	r, at, found, err := x.pages.execution(exec)
	if found {
		e, err = x.execution(r, at)
	}
	return e, found, err
}

// execution reads the execution whose record is at an offset.
func (x *index) execution(r record, at int64) (Execution, error) {
	e, err := x.header.readExecution(r.payload)
	for j := range e.Rows {
		row := &e.Rows[j]
		row.Phase = x.phase(e.Ctx, e.Exec, row.Phase)
		if len(row.Seqs) > 0 {
			row.Request = x.request(requestKey{e.Ctx, row.Seqs[0]}, at)
		}
	}
	e.Phase = x.phase(e.Ctx, e.Exec, e.Phase)
	return e, err
}

// request returns which request of a sequence an execution belongs to whose record is at an offset.
func (x *index) request(key requestKey, at int64) int32 {
	begun := x.requests[key]
	i := sort.Search(len(begun), func(i int) bool { return begun[i].at > at })
	if i == 0 {
		return label.RequestUnknown
	}
	for _, gap := range x.gaps {
		if begun[i-1].at < gap && gap < at {
			return label.RequestUnknown // the beginning of another one may be lost
		}
	}
	return begun[i-1].number
}

// phase returns what the phase of an execution was settled to be.
func (x *index) phase(ctx uint32, exec uint64, phase label.Phase) label.Phase {
	for _, r := range x.resolutions {
		if r.Ctx == ctx && r.FirstExec <= exec && exec <= r.LastExec {
			phase = r.Phase
		}
	}
	return phase
}

// place is where reading continues.
type place struct {
	found    bool
	at       int64
	sequence uint32
	chain    uint32
}

// resync looks for the next record after a damaged one that is certainly genuine: its checksum continues that of
// the record before it. At the end of a file, where a write was cut off, there is none.
func (s *source) resync(at int64, sequence, chain uint32) place {
	if r, ok := s.record(at); ok { // only this record's content or checksum is damaged
		next := at + int64(r.size())
		for _, c := range []uint32{r.crc, crc32.Update(chain, castagnoli, r.raw)} {
			if n, ok := s.record(next); ok && n.sequence == sequence+1 && n.follows(c) {
				return place{true, next, sequence + 1, c}
			}
		}
	}
	for p := at + 1; p+2*recordHeader <= s.size && s.err == nil; p++ {
		if n := s.zeros(p); n >= recordHeader { // no record has type 0
			p += n - recordHeader
			continue
		}
		head := s.bytes(p, recordHeader)
		size, ok := recordSize(head)
		if !ok || int64(size) > s.size-p {
			continue
		}
		crc, number := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[8:])
		if number-sequence-1 > uint32((p-at)/recordHeader) {
			continue
		}
		if n, ok := s.record(p + int64(size)); ok && n.sequence == number+1 && n.follows(crc) {
			return place{true, p + int64(size), n.sequence, crc}
		}
	}
	return place{}
}
