package blockio

import (
	"fmt"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// read takes a snapshot of the programs' memory.
func (c *Collector) read(now time.Time) (*resource.BlockLine, error) {
	parity := c.memory.beginEpoch()
	mono := bpf.MonoNS()
	there, err := c.dropVanished(c.memory.requests(), mono)
	if err != nil {
		return nil, err
	}
	line := &resource.BlockLine{HostHeader: c.header(now, mono, resource.OriginOf(c.set.Plain))}
	iv := &interval{plain: c.set.Plain, strap: c.o.Strap, device: c.names.device, group: c.groups.path,
		depths: map[int]depth{}}
	areas := map[int]uint64{}
	c.shares(iv, there, mono, areas)
	c.deepen(iv, areas, parity, line.ActualS*1e9)
	iv.fill(line)
	if err := c.losses(line); err != nil {
		return nil, err
	}
	if iv.plain && c.o.Follow && !c.o.Target.Any() {
		line.Missing = append(line.Missing, "what watched processes start: that needs a kernel with "+
			"CONFIG_DEBUG_INFO_BTF=y")
	}
	if iv.plain {
		line.Missing = append(line.Missing, "partitions, who submitted what was queued, merges and times in the "+
			"queue: the kernel's types (BTF) are not known")
	}
	return line, nil
}

// standing is what a row has at a snapshot.
type standing struct {
	inflight, waiting int64
	age               uint64 // of all in flight together, in ns
}

// shares reads what each row did, and adds up how long each disk has had requests until now: those that were
// completed, and the age of those that are there.
func (c *Collector) shares(iv *interval, there []request, mono int64, areas map[int]uint64) {
	rows := map[int]standing{}
	for _, r := range there {
		s := rows[r.row]
		switch {
		case r.issueNS == 0:
			s.waiting++
		default:
			s.inflight++
			s.age += uint64(max(0, mono-int64(r.issueNS)))
		}
		rows[r.row] = s
	}
	for i := range c.memory.rows {
		if !c.memory.inUse(i) {
			continue
		}
		r, at := readRow(c.memory.table, i), rows[i]
		d := c.memory.since(i)
		areas[int(r.disk)] += c.memory.before[i].serviceNS + at.age
		c.memory.tend(i, &r, at != standing{})
		if d == nil {
			if at.inflight == 0 && at.waiting == 0 {
				continue
			}
			d = &delta{}
		}
		d.inflight, d.waiting = at.inflight, at.waiting
		iv.shares = append(iv.shares, share{r, *d})
	}
}

// deepen computes the queue depth of each disk in an interval of ns nanoseconds.
func (c *Collector) deepen(iv *interval, areas map[int]uint64, parity int, ns float64) {
	for index := range diskCount {
		d := readDisk(c.memory.table, index)
		if d.state != ready && index > 0 {
			continue
		}
		now := c.memory.depth(index)
		at := depth{id: d.id, most: max(c.memory.deepest(index, parity), c.depths[index], now)}
		// A request that ended between the reading of the requests and that of the counts counted as both, and is
		// missing in the next interval. Where that makes the mean impossible, it is not known.
		if area := areas[index]; area >= c.areas[index] && ns > 0 {
			if mean := float64(area-c.areas[index]) / ns; mean <= float64(at.most) {
				at.mean = &mean
			}
		}
		iv.depths[index] = at
		c.areas[index], c.depths[index] = areas[index], now
	}
}

// dropVanished asks after requests that have been there for long: what the kernel has no longer is given up and
// counted. It returns the others.
func (c *Collector) dropVanished(there []request, mono int64) ([]request, error) {
	wait := int64(c.o.patience)
	if wait == 0 {
		wait = int64(patience)
	}
	since := make(map[request]int64, len(there))
	left := there[:0]
	for _, r := range there {
		first, known := c.since[r]
		if !known {
			first = mono
			if r.issueNS > 0 {
				first = int64(r.issueNS)
			}
		}
		if mono-first >= wait {
			dropped, err := c.memory.dropIfVanished(&r, mono-first)
			if err != nil {
				return nil, err
			}
			if dropped {
				continue
			}
		}
		since[r] = first
		left = append(left, r)
	}
	c.since = since
	return left, nil
}

// dropIfVanished gives a request of an age up if the kernel has it no longer.
func (m *memory) dropIfVanished(r *request, age int64) (dropped bool, err error) {
	switch {
	case m.set.Program("give_up") == nil:
		return false, nil
	case m.set.Plain:
		if age < int64(plainPatience) {
			return false, nil
		}
	case m.set.Program("is_alive") == nil:
		return false, nil
	default:
		if alive, err := m.ask("is_alive", r); err != nil || alive {
			return false, err
		}
	}
	return m.ask("give_up", r)
}

// losses fills in what was lost since the last snapshot.
func (c *Collector) losses(line *resource.BlockLine) error {
	missed, err := misses(c.set)
	if err != nil {
		return err
	}
	now, was := c.memory.lost(), c.lost
	d := func(i int) uint64 { return now[i] - was[i] }
	line.Lost = resource.BlockLosses{
		Requests: d(lostSlot), Processes: d(lostChild), Rows: d(lostRow), Devices: d(lostDisk),
		Unmatched: d(lostUnmatched),
		Orphans:   d(lostOrphan) + d(lostAged), Missed: missed - c.missed,
	}
	c.lost, c.missed = now, missed
	return nil
}

// misses is how many runs of the programs the kernel has left out.
func misses(set *bpf.Set) (uint64, error) {
	var n uint64
	for _, name := range []string{"on_start", "on_issue", "on_complete", "on_done", "on_requeue", "on_merge",
		"on_issue_plain", "on_complete_plain", "on_requeue_plain"} {
		p := set.Program(name)
		if p == nil {
			continue
		}
		s, err := p.Stats()
		if err != nil {
			return 0, fmt.Errorf("ask how often BPF program %s was left out: %w", name, err)
		}
		n += s.RecursionMisses
	}
	return n, nil
}

// plainFields finds where the fields of the tracepoints lie, for the constants of the programs.
func plainFields() (map[string]uint32, error) {
	constants := map[string]uint32{}
	for _, w := range []struct{ event, field, constant string }{
		{"block_rq_issue", "bytes", "issue_bytes_at"}, {"block_rq_issue", "rwbs", "issue_text_at"},
		{"block_rq_complete", "error", "complete_error_at"}, {"block_rq_complete", "rwbs", "complete_text_at"},
		{"block_rq_requeue", "rwbs", "requeue_text_at"},
	} {
		fields, err := bpf.Fields("block", w.event)
		if err != nil {
			return nil, err
		}
		at, ok := fields[w.field]
		if !ok {
			return nil, fmt.Errorf("%w: tracepoint block:%s of this kernel has no field %s", bpf.ErrMissing, w.event,
				w.field)
		}
		constants[w.constant] = at
	}
	return constants, nil
}
