package stream

// Hot path: one record per packet, 0 allocations but for nodes seen for the first time.

import (
	"encoding/binary"
	"fmt"
)

// maxSeeks bounds the seek table: when it is full, every other entry goes.
const maxSeeks = 1 << 15

// journal writes the records of an index. It has one user at a time.
type journal struct {
	header  Header
	out     *output
	before  *output // the stream, which is written first, so that the index never describes bytes that are not there
	head    []byte  // the header as it is written
	chain   uint32
	ids     map[node]uint64
	footer  Footer
	every   uint64 // packets per entry of the seek table
	tee     []byte // records that Options.Tee has not got yet; nil without one
	payload []byte // buffers
	record  []byte
}

func newJournal(h Header, out, before *output) (*journal, error) {
	j := &journal{header: h, out: out, before: before, ids: make(map[node]uint64), every: 1024}
	head := h.append(nil)
	_, chain, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	j.chain, j.head = chain, head
	return j, out.write(head)
}

// append writes the record whose payload is j.payload.
func (j *journal) append(kind byte) error {
	if len(j.payload) > maxRecord {
		return fmt.Errorf("index record of %d bytes: at most %d are possible; use a smaller batch", len(j.payload),
			maxRecord)
	}
	j.record, j.chain = appendRecord(j.record[:0], kind, uint32(j.footer.Records), j.chain, j.payload)
	j.footer.Records++
	if j.tee != nil {
		j.tee = append(j.tee, j.record...)
	}
	if !j.out.fits(len(j.record)) {
		if err := j.before.flush(); err != nil {
			return err
		}
	}
	return j.out.write(j.record)
}

// packet writes a packet's record, and its node's before if it is new.
func (j *journal) packet(p *Packet) error {
	n := nodeOf(p)
	id, known := j.ids[n]
	if !known {
		id = uint64(len(j.ids))
		j.ids[n] = id
		j.footer.Nodes = append(j.footer.Nodes, nodeTotals{})
		n.fill(&j.footer.Nodes[id].Packet)
		j.payload = n.append(binary.AppendUvarint(j.payload[:0], id))
		if err := j.append(recordNode); err != nil {
			return err
		}
	}
	j.seek(p)
	j.footer.Totals.addPacket(p)
	j.footer.Nodes[id].add(p)
	j.payload = j.header.appendPacket(j.payload[:0], id, p)
	return j.append(recordPacket)
}

// seek notes the place of the record that is about to be written.
func (j *journal) seek(p *Packet) {
	n := j.footer.Totals.Packets
	j.addSeek(Seek{Packet: n, Index: j.out.end(), Stream: p.Offset, Exec: p.Exec, chain: j.chain,
		record: j.footer.Records})
}

// addSeek puts an entry into the seek table if it is its packet's turn.
func (j *journal) addSeek(s Seek) {
	if s.Packet%j.every != 0 {
		return
	}
	if len(j.footer.Seeks) == maxSeeks {
		for i := range maxSeeks / 2 {
			j.footer.Seeks[i] = j.footer.Seeks[2*i]
		}
		j.footer.Seeks = j.footer.Seeks[:maxSeeks/2]
		j.every *= 2
	}
	j.footer.Seeks = append(j.footer.Seeks, s)
}

// control writes a record that is not a packet.
func (j *journal) control(it *item) error {
	t := &j.footer.Totals
	switch it.kind {
	case recordExecution:
		t.Executions++
		t.Rows += uint64(it.rows)
	case recordLoss:
		j.footer.Losses = addLoss(j.footer.Losses, readLoss(&cursor{b: it.payload}))
	}
	j.payload = append(j.payload[:0], it.payload...)
	return j.append(it.kind)
}

// commit writes a commit marker.
func (j *journal) commit() error {
	t := &j.footer.Totals
	t.Commits++
	j.payload = j.payload[:0]
	for _, v := range []uint64{uint64(t.StreamBytes), t.Packets, t.Executions, t.Rows} {
		j.payload = binary.AppendUvarint(j.payload, v)
	}
	return j.append(recordCommit)
}

// flush writes both files' buffers, the stream's first.
func (j *journal) flush() error {
	if err := j.before.flush(); err != nil {
		return err
	}
	return j.out.flush()
}

// end writes the end record. Tables that are too large for a record are left out; they can be had from the other
// records.
func (j *journal) end() error {
	j.payload = j.footer.append(j.payload[:0])
	if len(j.payload) > maxRecord {
		j.footer.Seeks, j.footer.Nodes = nil, nil
		j.payload = j.footer.append(j.payload[:0])
	}
	return j.append(recordEnd)
}
