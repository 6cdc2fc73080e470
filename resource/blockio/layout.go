package blockio

import (
	"bytes"
	"encoding/binary"

	"github.com/llamatap/llamatap/resource"
)

// The layout of requests.h. layout_test.go compares it with what a C compiler makes of the header.
const (
	ways      = 2
	slotCount = 8192 * ways
	diskCount = 32
	fixedRows = 256
	allRows   = fixedRows + 2048
	opCount   = 5
	sizeCount = 8

	slotSize = 32
	rowSize  = 48
	diskSize = 64

	slotsAt   = 0
	rowsAt    = slotsAt + slotSize*slotCount
	disksAt   = rowsAt + rowSize*allRows
	epochAt   = disksAt + diskSize*diskCount
	lostAt    = epochAt + 64
	tableSize = lostAt + 8*lostCount

	queueAt    = 5 * 8
	oddsAt     = queueAt + 4*resource.HistogramSlots // merges and what follows
	latencyAt  = 256
	countsSize = latencyAt + 4*resource.HistogramSlots*sizeCount
)

// States of a row or a disk.
const (
	free = iota
	claimed
	ready
	retired
)

// Indices of what was lost.
const (
	lostSlot = iota
	lostRow
	lostDisk
	lostUnmatched
	lostOrphan
	lostAged
	lostChild
	lostCount
)

// u64 and u32 read memory that BPF programs write meanwhile: an aligned number is read at once.
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u16(b []byte, at int) uint16 { return binary.NativeEndian.Uint16(b[at:]) }

// row is what requests have in common.
type row struct {
	state    uint32
	op       uint32
	device   uint32
	disk     uint32 // index
	tgid     uint32
	cgroup   uint64
	comm     string
	hasGroup bool // false in rows of all that found no room
}

func readRow(table []byte, index int) row {
	b := table[rowsAt+rowSize*index:][:rowSize]
	comm, _, _ := bytes.Cut(b[32:48], []byte{0})
	return row{
		state: u32(b, 0), op: min(u32(b, 4), opCount-1), device: u32(b, 8), disk: u32(b, 12) % diskCount,
		tgid:   u32(b, 16),
		cgroup: u64(b, 24), comm: string(comm), hasGroup: index >= fixedRows,
	}
}

// disk is a disk's depth.
type disk struct {
	state   uint32
	id      uint32
	deepest [2]uint64
}

func readDisk(table []byte, index int) disk {
	b := table[disksAt+diskSize*index:][:diskSize]
	return disk{state: u32(b, 0), id: u32(b, 4), deepest: [2]uint64{u64(b, 16), u64(b, 24)}}
}

// request is one that was submitted and has not ended.
type request struct {
	at      int
	key     uint64
	issueNS uint64 // 0 while it waits
	row     int
}

// readRequests appends the requests of a table to dst.
func readRequests(dst []request, table []byte) []request {
	for at := range slotCount {
		b := table[slotsAt+slotSize*at:][:slotSize]
		key := u64(b, 0)
		if key == 0 {
			continue
		}
		r := request{at: at, key: key, issueNS: u64(b, 8), row: int(u16(b, 20))}
		if r.row < allRows && u64(b, 0) == key { // it may have ended just now
			dst = append(dst, r)
		}
	}
	return dst
}

// counts are what was counted of a row, by all processors together.
type counts struct {
	events, bytes, serviceNS, queueNS, queued, merges, requeues, errors, unissued, unissuedNS, untimed uint64

	queue   [resource.HistogramSlots]uint32
	latency [sizeCount][resource.HistogramSlots]uint32
}

// add adds what one processor counted.
func (c *counts) add(b []byte) {
	for i, to := range []*uint64{&c.events, &c.bytes, &c.serviceNS, &c.queueNS, &c.queued} {
		*to += u64(b, 8*i)
	}
	for i, to := range []*uint64{&c.merges, &c.requeues, &c.errors, &c.unissued, &c.unissuedNS, &c.untimed} {
		*to += u64(b, oddsAt+8*i)
	}
	for i := range c.queue {
		c.queue[i] += u32(b, queueAt+4*i)
	}
	for size := range c.latency {
		for i := range c.latency[size] {
			c.latency[size][i] += u32(b, latencyAt+4*(resource.HistogramSlots*size+i))
		}
	}
}

// since returns what was counted after an earlier state. Counts of 32 bits may have wrapped once.
func (c *counts) since(before *counts) delta {
	d := delta{
		bytes: c.bytes - before.bytes, serviceNS: c.serviceNS - before.serviceNS, queueNS: c.queueNS - before.queueNS,
		merges: c.merges - before.merges, requeues: c.requeues - before.requeues, errors: c.errors - before.errors,
		unissued: c.unissued - before.unissued, unissuedNS: c.unissuedNS - before.unissuedNS,
		untimed: c.untimed - before.untimed,
	}
	for i := range c.queue {
		d.queue[i] = uint64(c.queue[i] - before.queue[i])
	}
	for size := range c.latency {
		for i := range c.latency[size] {
			d.latency[size][i] = uint64(c.latency[size][i] - before.latency[size][i])
		}
	}
	return d
}

// delta is what was counted of something in an interval.
type delta struct {
	bytes, serviceNS, queueNS, merges, requeues, errors, unissued, unissuedNS, untimed uint64
	inflight, waiting                                                                  int64
	queue                                                                              resource.Histogram
	latency                                                                            [sizeCount]resource.Histogram
}

func (d *delta) merge(e *delta) {
	d.bytes += e.bytes
	d.serviceNS += e.serviceNS
	d.queueNS += e.queueNS
	d.merges += e.merges
	d.requeues += e.requeues
	d.errors += e.errors
	d.unissued += e.unissued
	d.unissuedNS += e.unissuedNS
	d.untimed += e.untimed
	d.inflight += e.inflight
	d.waiting += e.waiting
	d.queue.Merge(&e.queue)
	for i := range d.latency {
		d.latency[i].Merge(&e.latency[i])
	}
}

// allSizes returns the latency of all sizes.
func (d *delta) allSizes() resource.Histogram {
	var h resource.Histogram
	for i := range d.latency {
		h.Merge(&d.latency[i])
	}
	return h
}

// empty reports whether nothing happened and no request is present.
func (d *delta) empty() bool { return *d == delta{} }
