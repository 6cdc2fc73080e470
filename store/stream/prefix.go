package stream

import (
	"fmt"
	"io"
	"slices"
)

// prefix is the part of a stream and its index that ends with a commit, or with the end record.
type prefix struct {
	Mark
	index    *index // of the prefix, without its records
	totals   Totals
	chain    uint32
	sequence uint32
	ended    bool // the end record is part of it
}

// findPrefix finds the longest prefix for all of whose records whole returns true. all are the totals of every sound
// record. Recovery, repair and resume truncate a stream at the place that it finds.
func findPrefix(in io.ReaderAt, size int64, whole func(x *index, r record) bool) (p *prefix, all Totals, err error) {
	w, err := walk(in, size)
	if err != nil {
		return nil, all, err
	}
	x, sound := w.index, true
	p = &prefix{index: newIndex(x.header, nil, 0), chain: w.chain, Mark: Mark{IndexBytes: w.at}}
	for r, ok := w.next(); ok; r, ok = w.next() {
		sound = sound && whole(x, r)
		if sound && (r.kind == recordCommit || r.kind == recordEnd) {
			t := x.totals
			p.index.nodes, p.index.lost, p.index.resolutions, p.index.losses = x.nodes, x.lost, x.resolutions,
				slices.Clone(x.losses)
			p.totals, p.chain, p.sequence, p.ended = t, w.chain, w.sequence, r.kind == recordEnd
			p.Mark = Mark{StreamBytes: t.StreamBytes, IndexBytes: w.at, Packets: t.Packets, Executions: t.Executions,
				Rows: t.Rows, Commits: t.Commits}
		}
		if r.kind == recordEnd {
			break
		}
	}
	if w.err != nil {
		return nil, all, fmt.Errorf("read index: %w", w.err)
	}
	return p, x.totals, nil
}

// sum reads the prefix again and returns its packets' totals by node. It calls each, unless it is nil, with every
// packet and the place of its record in the index.
func (p *prefix) sum(in io.ReaderAt, each func(*Packet, Seek)) ([]nodeTotals, error) {
	x := p.index
	all, ids := make([]nodeTotals, len(x.nodes)), make(map[node]int, len(x.nodes))
	for i := range x.nodes {
		x.nodes[i].fill(&all[i].Packet)
		ids[x.nodes[i]] = i
	}
	w, err := walk(in, p.IndexBytes)
	if err != nil {
		return nil, err
	}
	var packet Packet
	at, chain, packets := w.at, w.chain, uint64(0)
	for r, ok := w.next(); ok; r, ok = w.next() {
		if r.kind == recordPacket && x.header.readPacket(r.payload, x.nodes, x.lost, &packet) == nil {
			if each != nil {
				each(&packet, Seek{Packet: packets, Index: at, Stream: packet.Offset, Exec: packet.Exec, chain: chain,
					record: uint64(r.sequence)})
			}
			packets++
			all[ids[nodeOf(&packet)]].add(&packet)
		}
		at, chain = w.at, w.chain
	}
	if w.err == nil && w.at != p.IndexBytes {
		w.err = ErrCorrupt // another process changed it
	}
	return all, w.err
}

// appendEnd appends the records that complete the index: losses, and the end record without a seek table, which
// readers do not need.
func (p *prefix) appendEnd(dst []byte, in io.ReaderAt, losses []Loss) ([]byte, error) {
	nodes, err := p.sum(in, nil)
	if err != nil {
		return dst, err
	}
	f := Footer{Totals: p.totals, Losses: p.index.losses, Nodes: nodes}
	chain, sequence := p.chain, p.sequence
	for i := range losses {
		dst, chain = appendRecord(dst, recordLoss, sequence, chain, losses[i].append(nil))
		f.Losses = addLoss(f.Losses, losses[i])
		sequence++
	}
	f.Records = uint64(sequence)
	payload := f.append(nil)
	if len(payload) > maxRecord {
		f.Nodes = nil
		payload = f.append(nil)
	}
	dst, _ = appendRecord(dst, recordEnd, sequence, chain, payload)
	return dst, nil
}
