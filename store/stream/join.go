package stream

import (
	"errors"
	"fmt"
	"sort"
)

// Join returns a reader of several streams with indexes as if they were one, in their order: the segments of a run.
// Packets' offsets continue from stream to stream. Close closes them all.
func Join(parts ...*Reader) *Reader {
	r := &Reader{joined: joined{parts: parts}}
	for i, p := range parts {
		r.bases, r.firsts = append(r.bases, r.size), append(r.firsts, r.packets)
		r.size += p.size
		r.packets += p.Len()
		for _, err := range p.damage {
			r.damage = append(r.damage, fmt.Errorf("stream %d of %d: %w", i+1, len(parts), err))
		}
	}
	return r
}

// joined is what a Reader has that Join made.
type joined struct {
	parts   []*Reader
	bases   []int64 // offsets at which they begin
	firsts  []int   // numbers of their first packets
	packets int
}

// ofPacket fills p with packet i.
func (j *joined) ofPacket(i int, p *Packet) error {
	at := sort.Search(len(j.firsts), func(k int) bool { return j.firsts[k] > i }) - 1
	err := j.parts[at].Packet(i-j.firsts[at], p)
	p.Offset += j.bases[at]
	return err
}

// holding returns the part that holds a packet, and the packet as that knows it.
func (j *joined) holding(p *Packet) (*Reader, Packet, error) {
	at := sort.Search(len(j.bases), func(k int) bool { return j.bases[k] > p.Offset }) - 1
	if at < 0 {
		return nil, *p, fmt.Errorf("tensor %q: %w: offset %d", p.Name, ErrCorrupt, p.Offset)
	}
	own := *p
	own.Offset -= j.bases[at]
	return j.parts[at], own, nil
}

func (j *joined) totals() (sum Totals) {
	for _, p := range j.parts {
		t := p.Totals()
		sum.StreamBytes += t.StreamBytes
		sum.Packets += t.Packets
		sum.Executions += t.Executions
		sum.Rows += t.Rows
		sum.Commits += t.Commits
		sum.SrcBytes += t.SrcBytes
		sum.RawBytes += t.RawBytes
		sum.Stored += t.Stored
		sum.Saturated += t.Saturated
		sum.Underflow += t.Underflow
	}
	return sum
}

func (j *joined) losses() (all []Loss) {
	for _, p := range j.parts {
		for _, l := range p.Losses() {
			all = addLoss(all, l)
		}
	}
	return all
}

func (j *joined) close() error {
	var errs []error
	for _, p := range j.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
