package sched

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
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
		HostHeader: resource.NewHostHeader(now, c.m.now, c.o.Interval, time.Duration(c.m.now-c.m.last), c.Origin()), Missing: c.missing,
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
	c.m.last = c.m.now
	if err := c.pressure(line); err != nil {
		return nil, err
	}
	c.put(line, all)
	return line, nil
}

// read tells of all threads by their accounts.
func (c *Collector) read(losses *resource.SystemLosses) ([]spent, error) {
	if err := c.set.Map("epoch").Put(uint32(0), c.m.epoch+1); err != nil {
		return nil, fmt.Errorf("begin an interval: %w", err)
	}
	defer func() { c.m.epoch++ }()
	there, err := c.present(c.m.now)
	if err != nil {
		return nil, err
	}
	var all []spent
	seen := make(map[threadKey]bool, len(c.told))
	err = c.table.each(func(index uint32, key threadKey) error {
		seen[key] = true
		a, ok, err := c.table.read(index, key)
		if !ok {
			losses.Unsteady++
			return err
		}
		p, t := there[key], c.told[key]
		if t == nil {
			t = &told{}
			c.told[key] = t
		}
		s, ok := t.tell(key.TID, &a, p, c.m)
		if !ok {
			return nil
		}
		all = append(all, s)
		if p == nil && s.line.Ended {
			delete(c.told, key)
			return c.table.free(index, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(c.told, func(key threadKey, _ *told) bool { return !seen[key] && there[key] == nil })
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
	text, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	all := make(map[threadKey]*present, len(text)/binary.Size(record{}))
	for from := bytes.NewReader(text); from.Len() > 0; {
		var r record
		if err := binary.Read(from, binary.NativeEndian, &r); err != nil {
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
