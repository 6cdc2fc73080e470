package stream

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// index is an index file in memory: its bytes, and where the records lie in them.
type index struct {
	header      Header
	data        []byte
	slim        bool // of packets, executions and requests nothing is noted but their totals
	nodes       []node
	lost        []bool  // nodes whose record is missing
	packets     []int64 // offsets of records in data
	executions  []executionAt
	losses      []Loss
	resolutions []Resolution
	requests    map[requestKey][]requestAt // begins, in order
	gaps        []int64                    // where records are missing
	repairs     []Gap
	missing     uint64                   // records of the last such place
	end         int                      // of what was read
	each        func(r record, at int64) // if set: told every sound record, and with an empty one where some are missing
	totals      Totals                   // of what was read
	footer      *Footer

	damage  []error
	corrupt bool // in the middle
}

type executionAt struct {
	exec uint64
	at   int64
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

// scan reads all records of an index. Only an unreadable header and a version that this program does not know are errors; what
// else is wrong goes to damage.
func scan(data []byte) (*index, error) {
	h, chain, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	x := newIndex(h, data)
	return x, x.scan(chain)
}

func (x *index) scan(chain uint32) error {
	data := x.data
	at, sequence := headerSize, uint32(0)
	for at < len(data) && x.footer == nil {
		r, ok := parseRecord(data[at:])
		if !ok || r.sequence != sequence || !r.follows(chain) {
			next := resync(data, at, sequence, chain)
			if !next.found {
				x.hurt(fmt.Errorf("index: %w: the last %d bytes, from byte %d, are no whole record", ErrTruncated, len(data)-at, at))
				at = len(data)
				break
			}
			x.missing = uint64(next.sequence - sequence)
			x.lose(int64(at))
			x.hurt(fmt.Errorf("index: %w: bytes %d to %d, %d records", ErrCorrupt, at, next.at-1, next.sequence-sequence))
			at, sequence, chain = next.at, next.sequence, next.chain
			continue
		}
		if err := x.take(r, int64(at)); err != nil {
			if errors.Is(err, ErrVersion) {
				return fmt.Errorf("index: record at byte %d: %w", at, err)
			}
			x.missing = 1
			x.lose(int64(at))
			x.hurt(fmt.Errorf("index: %w: record at byte %d: %w", ErrCorrupt, at, err))
		} else if x.each != nil {
			x.each(r, int64(at))
		}
		at, sequence, chain = at+r.size(), sequence+1, r.crc
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
func (x *index) finish(end int) {
	x.end = end
	switch {
	case x.footer == nil:
		x.hurt(fmt.Errorf("index: %w: no end record, its writer was stopped", ErrTruncated))
	case end < len(x.data):
		x.hurt(fmt.Errorf("index: %w: %d bytes behind the end record", ErrCorrupt, len(x.data)-end))
	case !x.corrupt && x.footer.Totals != x.totals:
		x.hurt(fmt.Errorf("index: %w: the end record counts %+v, the records are %+v", ErrCorrupt, x.footer.Totals, x.totals))
	}
	byExec := func(a, b executionAt) int { return cmp.Compare(a.exec, b.exec) }
	if !slices.IsSortedFunc(x.executions, byExec) {
		slices.SortStableFunc(x.executions, byExec)
	}
}

// take adds a record whose checksum is right.
func (x *index) take(r record, at int64) error {
	switch r.kind {
	case recordNode:
		return x.takeNode(r.payload)
	case recordPacket:
		return x.takePacket(r.payload, at)
	case recordExecution:
		e, err := x.header.readExecution(r.payload)
		if err != nil {
			return err
		}
		if !x.slim {
			x.executions = append(x.executions, executionAt{e.Exec, at})
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
	if id < known || id > known && (!x.corrupt || id-known > uint64(len(x.data)/recordHeader)) {
		return fmt.Errorf("%w: node %d after %d nodes", errField, id, known)
	}
	for uint64(len(x.nodes)) < id {
		x.nodes, x.lost = append(x.nodes, node{}), append(x.lost, true)
	}
	x.nodes, x.lost = append(x.nodes, n), append(x.lost, false)
	return nil
}

func (x *index) takePacket(payload []byte, at int64) error {
	var p Packet
	if err := x.header.readPacket(payload, x.nodes, x.lost, &p); err != nil {
		return err
	}
	if p.Offset < x.totals.StreamBytes || p.Offset > x.totals.StreamBytes && !x.corrupt {
		return fmt.Errorf("%w: packet at byte %d of the stream, where the one before it ends at %d", errField, p.Offset, x.totals.StreamBytes)
	}
	if !x.slim {
		x.packets = append(x.packets, at)
	}
	x.totals.addPacket(&p)
	return nil
}

// packet fills p with packet i.
func (x *index) packet(i int, p *Packet) error {
	r, _ := parseRecord(x.data[x.packets[i]:])
	if err := x.header.readPacket(r.payload, x.nodes, x.lost, p); err != nil {
		return err
	}
	p.Phase = x.phase(p.Ctx, p.Exec, p.Phase)
	return nil
}

func (x *index) execution(i int) Execution {
	r, _ := parseRecord(x.data[x.executions[i].at:])
	e, _ := x.header.readExecution(r.payload) // it was read before
	for j := range e.Rows {
		row := &e.Rows[j]
		row.Phase = x.phase(e.Ctx, e.Exec, row.Phase)
		if len(row.Seqs) > 0 {
			row.Request = x.request(requestKey{e.Ctx, row.Seqs[0]}, x.executions[i].at)
		}
	}
	e.Phase = x.phase(e.Ctx, e.Exec, e.Phase)
	return e
}

// request returns which request of a sequence an execution belongs to whose record stands at a place.
func (x *index) request(key requestKey, at int64) int32 {
	begun := x.requests[key]
	i := sort.Search(len(begun), func(i int) bool { return begun[i].at > at })
	if i == 0 {
		return ggmlhooks.RequestUnknown
	}
	for _, gap := range x.gaps {
		if begun[i-1].at < gap && gap < at {
			return ggmlhooks.RequestUnknown // the beginning of another one may be lost
		}
	}
	return begun[i-1].number
}

// phase returns what the phase of an execution was settled to be.
func (x *index) phase(ctx uint32, exec uint64, phase ggmlhooks.Phase) ggmlhooks.Phase {
	for _, r := range x.resolutions {
		if r.Ctx == ctx && r.FirstExec <= exec && exec <= r.LastExec {
			phase = r.Phase
		}
	}
	return phase
}

// place is where reading goes on.
type place struct {
	found    bool
	at       int
	sequence uint32
	chain    uint32
}

// resync looks for the next record behind a damaged one that is certainly genuine: its checksum continues that of the record
// before it. At the end of a file, where a write was cut off, there is none.
func resync(data []byte, at int, sequence, chain uint32) place {
	if r, ok := parseRecord(data[at:]); ok { // only this record's content or checksum is damaged
		for _, c := range []uint32{r.crc, crc32.Update(chain, castagnoli, r.raw)} {
			if n, ok := parseRecord(data[at+r.size():]); ok && n.sequence == sequence+1 && n.follows(c) {
				return place{true, at + r.size(), sequence + 1, c}
			}
		}
	}
	for p := at + 1; p+2*recordHeader <= len(data); p++ {
		r, ok := parseRecord(data[p:])
		if !ok || r.sequence-sequence-1 > uint32((p-at)/recordHeader) {
			continue
		}
		if n, ok := parseRecord(data[p+r.size():]); ok && n.sequence == r.sequence+1 && n.follows(r.crc) {
			return place{true, p + r.size(), n.sequence, r.crc}
		}
	}
	return place{}
}
