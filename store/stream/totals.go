package stream

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Totals are the sums over a stream.
type Totals struct {
	StreamBytes int64 // size of the stream file
	Packets     uint64
	Executions  uint64
	Rows        uint64 // token rows of executions, set-up included
	Commits     uint64
	SrcBytes    uint64
	RawBytes    uint64
	Stored      uint64 // payload bytes
	Saturated   uint64
	Underflow   uint64
}

func (t *Totals) addPacket(p *Packet) {
	t.StreamBytes = p.Offset + packetHeader + int64(len(p.Name)) + p.Stored
	t.Packets++
	t.SrcBytes += uint64(p.SrcBytes)
	t.RawBytes += uint64(p.RawBytes)
	t.Stored += uint64(p.Stored)
	t.Saturated += p.Saturated
	t.Underflow += p.Underflow
}

// join adds the sums over another stream.
func (t *Totals) join(u *Totals) {
	t.StreamBytes += u.StreamBytes
	t.Packets += u.Packets
	t.Executions += u.Executions
	t.Rows += u.Rows
	t.Commits += u.Commits
	t.SrcBytes += u.SrcBytes
	t.RawBytes += u.RawBytes
	t.Stored += u.Stored
	t.Saturated += u.Saturated
	t.Underflow += u.Underflow
}

// nodeTotals are the sums over the packets of one node of one context.
type nodeTotals struct {
	Packet   Packet // only what all packets of the node have in common: Name to SrcType
	Packets  uint64
	SrcBytes uint64
	RawBytes uint64
	Stored   uint64
}

func (t *nodeTotals) add(p *Packet) {
	t.Packets++
	t.SrcBytes += uint64(p.SrcBytes)
	t.RawBytes += uint64(p.RawBytes)
	t.Stored += uint64(p.Stored)
}

// Seek is a place in the middle of an index at which reading can begin: a packet record.
type Seek struct {
	Packet uint64 // number of the packet, from 0
	Index  int64  // offset of its record in the index
	Stream int64  // its offset in the stream
	Exec   uint64
	chain  uint32 // checksum that the record continues
	record uint64 // its number
}

// Footer is the end record of a complete index: what a summary needs, without a look at the packets.
type Footer struct {
	Records uint64 // records before the end record
	Totals  Totals
	Losses  []Loss
	Nodes   []nodeTotals
	Seeks   []Seek // every so many packets, the first packet included
}

func (f *Footer) append(dst []byte) []byte {
	start := len(dst)
	t := &f.Totals
	for _, v := range []uint64{f.Records, uint64(t.StreamBytes), t.Packets, t.Executions, t.Rows, t.Commits,
		t.SrcBytes, t.RawBytes, t.Stored, t.Saturated, t.Underflow} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(len(f.Losses)))
	for i := range f.Losses {
		dst = f.Losses[i].append(dst)
	}
	dst = binary.AppendUvarint(dst, uint64(len(f.Nodes)))
	for i := range f.Nodes {
		n := nodeOf(&f.Nodes[i].Packet)
		dst = n.append(dst)
		for _, v := range []uint64{f.Nodes[i].Packets, f.Nodes[i].SrcBytes, f.Nodes[i].RawBytes, f.Nodes[i].Stored} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(f.Seeks)))
	for _, s := range f.Seeks {
		for _, v := range []uint64{s.Packet, uint64(s.Index), uint64(s.Stream), s.Exec, s.record} {
			dst = binary.AppendUvarint(dst, v)
		}
		dst = binary.LittleEndian.AppendUint32(dst, s.chain)
	}
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(recordHeader+len(dst)-start+8))
	return append(dst, endMagic...)
}

// readFooter reads an end record's payload.
func readFooter(payload []byte) (*Footer, error) {
	n := len(payload) - endTrailer
	if n < 0 || string(payload[n+8:]) != endMagic ||
		binary.LittleEndian.Uint32(payload[n+4:]) != uint32(recordHeader+len(payload)) ||
		binary.LittleEndian.Uint32(payload[n:]) != checksum(payload[:n]) {
		return nil, fmt.Errorf("%w: trailer", errField)
	}
	c := cursor{b: payload[:n]}
	f := &Footer{Records: c.uint()}
	t := &f.Totals
	t.StreamBytes = c.size(math.MaxInt64)
	for _, v := range []*uint64{&t.Packets, &t.Executions, &t.Rows, &t.Commits, &t.SrcBytes, &t.RawBytes, &t.Stored,
		&t.Saturated, &t.Underflow} {
		*v = c.uint()
	}
	for range c.size(uint64(len(c.b))) {
		f.Losses = append(f.Losses, readLoss(&c))
	}
	for range c.size(uint64(len(c.b))) {
		var n nodeTotals
		node := readNode(&c)
		node.fill(&n.Packet)
		n.Packets, n.SrcBytes, n.RawBytes, n.Stored = c.uint(), c.uint(), c.uint(), c.uint()
		f.Nodes = append(f.Nodes, n)
	}
	for range c.size(uint64(len(c.b))) {
		f.Seeks = append(f.Seeks, Seek{
			Packet: c.uint(), Index: c.size(math.MaxInt64), Stream: c.size(math.MaxInt64), Exec: c.uint(),
			record: c.uint(), chain: c.uint32(),
		})
	}
	return f, c.done()
}
