package ledger

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// copies are what llama.cpp copied from experts in host memory to its cache of experts on a device (--moe-cache-mib),
// and no execution was written that reads the cache.
type copies struct {
	m       *memtrace.RegionMap
	waiting []copied
}

// copied is neighbouring experts that were copied at once.
type copied struct {
	from, to operand
	at       [2]span // of from and to
	ns       int64   // when it began
}

// note keeps a copy of a weight to a cache of experts. What else is moved to a device, such as a graph's inputs, is
// none.
func (c *copies) note(m *ggmlhooks.Moved) {
	if !m.Copy {
		return
	}
	cache, weight := c.m.At(m.Buffer, m.Offset).Region, c.m.Address(m.Addr, m.BegunNS)
	if cache == nil || !strings.HasPrefix(cache.Root().Tensor, cachePrefix) || weight.Type() != memtrace.Weight ||
		weight.Region.Tensor == "" {
		return
	}
	layer := int32(weight.Region.Layer)
	c.waiting = append(c.waiting, copied{
		from: operand{node: none, op: memtrace.OpRead, layer: layer, region: weight.Region,
			buffer: c.m.Buffer(weight.Region.Buffer)},
		to: operand{node: none, op: memtrace.OpWrite, layer: layer, region: cache,
			buffer: c.m.Buffer(m.Buffer)},
		at: [2]span{{offset: weight.Region.Offset + weight.Offset, run: m.Bytes, pieces: 1},
			{offset: m.Offset, run: m.Bytes, pieces: 1}},
		ns: m.BegunNS,
	})
}

// visit emits the copies up to an execution's end into memory that it reads, and forgets them. Those of one that failed
// are forgotten alone, as all that it touched.
func (c *copies) visit(x *execution, emit func(*execution, *access) error) error {
	if len(c.waiting) == 0 {
		return nil
	}
	left := c.waiting[:0]
	for _, w := range c.waiting {
		if w.ns > x.end || !x.plan.reads(w.to.buffer) {
			left = append(left, w)
			continue
		}
		for i, o := range [...]*operand{&w.from, &w.to} {
			if x.failed {
				break
			}
			a := access{operand: o, span: w.at[i], flags: memtrace.TraceCopied, token: none, seq: none, block: none,
				ns: w.ns}
			if err := emit(x, &a); err != nil {
				return err
			}
		}
	}
	c.waiting = left
	return nil
}

// reads reports whether the graph reads a buffer.
func (p *plan) reads(b *memtrace.Buffer) bool {
	if p.from == nil {
		p.from = map[*memtrace.Buffer]bool{}
		for i := range p.items {
			if it := &p.items[i]; it.op == memtrace.OpRead {
				p.from[it.buffer] = true
			}
		}
	}
	return p.from[b]
}
