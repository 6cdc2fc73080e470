package sched

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// unsteadyTries is how often the accounts of a thread are read that changes meanwhile.
const unsteadyTries = 16

// Snapshot returns what happened since the snapshot before, or since Open, as a resource.SystemLine.
func (c *Collector) Snapshot(now time.Time) (any, error) {
	line, err := c.snapshot(now)
	if err != nil {
		return nil, err
	}
	return *line, nil
}

func (c *Collector) snapshot(now time.Time) (*resource.SystemLine, error) {
	c.m.now = bpf.MonoNS()
	line := &resource.SystemLine{
		HostHeader: resource.NewHostHeader(now, c.m.now, c.o.Interval, time.Duration(c.m.now-c.m.last), c.Origin()),
		Missing:    c.missing,
	}
	var all []spent
	var err error
	if c.set == nil {
		all, err = c.poll()
	} else {
		all, err = c.read(&line.Lost)
	}
	if err != nil {
		return nil, err
	}
	var computed resource.GraphTime
	if c.o.Computed != nil {
		computed = c.o.Computed(c.m.last, c.m.now)
	}
	for i := range all {
		all[i].judge(computed)
	}
	c.m.last = c.m.now
	if err := addPressure(line, c.root, c.o.Target); err != nil {
		return nil, err
	}
	c.put(line, all)
	return line, nil
}

// read reports all threads by their accounts.
func (c *Collector) read(losses *resource.SystemLosses) ([]spent, error) {
	if err := c.set.Map("epoch").Put(uint32(0), c.m.epoch+1); err != nil {
		return nil, fmt.Errorf("begin an interval: %w", err)
	}
	defer func() { c.m.epoch++ }()
	there, err := c.present(c.m.now)
	if err != nil {
		return nil, err
	}
	all := make([]spent, 0, len(there))
	// The histories move to a new map at each snapshot: a map that entries are deleted from never shrinks.
	next := make(map[threadKey]*history, len(there))
	err = c.table.each(func(index uint32, key threadKey) error {
		t := c.history[key]
		if t == nil {
			t = &history{}
		}
		next[key] = t
		a, ok, err := c.table.read(index, key)
		if !ok {
			losses.Unsteady++
			return err
		}
		p := there[key]
		s, ok := t.advance(key.TID, &a, p, c.m)
		if !ok {
			return nil
		}
		all = append(all, s)
		if p == nil && s.line.Ended {
			delete(next, key)
			return c.table.free(index, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for key := range there {
		if t := c.history[key]; t != nil && next[key] == nil {
			next[key] = t
		}
	}
	c.history = next
	total, err := bpf.Sum(c.set.Map("lost"), 0)
	losses.Threads, c.lost = total-c.lost, total
	return all, err
}

// unknown is UNKNOWN of account.h.
const unknown = math.MaxUint64

// record is struct thread_record of sched.bpf.c.
type record struct {
	Key          threadKey
	TGID         uint32
	_            uint32
	Queued       uint64
	Minor, Major uint64
	Comm         [16]byte
}

// present returns the threads that are there, and opens accounts for those that have none.
func (c *Collector) present(now int64) (map[threadKey]*present, error) {
	if c.each == nil {
		return c.presentPlain(now)
	}
	reader, err := c.each.Open()
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer reader.Close()
	all := make(map[threadKey]*present, len(c.history))
	text := make([]byte, binary.Size(record{}))
	for from := bufio.NewReaderSize(reader, 1<<16); ; {
		if _, err := io.ReadFull(from, text); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		var r record
		if _, err := binary.Decode(text, binary.NativeEndian, &r); err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		p := &present{tgid: r.TGID, counted: true, minor: r.Minor, major: r.Major, comm: commText(r.Comm)}
		if r.Queued != unknown {
			p.queued = int64(min(r.Queued, math.MaxInt64))
		}
		all[r.Key] = p
	}
	return all, nil
}

// sorted returns the threads of a line in their order.
func sorted(all []spent) []spent {
	slices.SortFunc(all, func(a, b spent) int {
		if a.line.TGID != b.line.TGID {
			return a.line.TGID - b.line.TGID
		}
		return a.line.TID - b.line.TID
	})
	return all
}
