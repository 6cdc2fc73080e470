package ledger

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
)

// lookup says where the numbers of rows that are looked up come from.
type lookup struct {
	from  lookupSource
	by    int // leaf or node that reports it
	first int // of its numbers
	count int // of them, 0 = all
}

type lookupSource uint8

const (
	lookTokens  lookupSource = iota // ids of the execution's tokens
	lookPos                         // positions
	lookOutputs                     // rows of the tokens whose results are wanted
	lookStates                      // cells of recurrent states
	lookExperts                     // chosen experts
)

// lookup adds a read of rows by an index, which is another source of the node. dim is the dimension that rows are
// counted in.
func (p *planner) lookup(n *ggmlhooks.Node, index, dim int, it *item) {
	src, ok := n.SrcAt(index)
	rows := int64(1)
	if ok {
		rows = elements(sourceOf(p.g, src).ne)
	}
	row := it.at.part(dim, 0, 1)
	for d := dim + 1; d < 4; d++ {
		row.ne[d] = 1 // a plane for each plane of the index
	}
	if it.at.block == 0 {
		p.fixed(it)
		return
	}
	from, known := p.index(src, ok)
	if !known || it.at.bytes() != row.bytes()*uint64(it.at.ne[dim]) {
		p.somewhere(it, row.bytes(), rows)
		return
	}
	it.kind, it.dim, it.rows = itemLookup, dim, from
	it.rows.count = int(rows)
	p.add(it)
}

// index finds out what an index holds, if that is reported of each execution.
func (p *planner) index(src int32, ok bool) (from lookup, known bool) {
	if !ok {
		return from, false
	}
	shown := p.g.Shown(src)
	if shown >= 0 {
		return from, false
	}
	leaf := &p.g.Leafs[-1-shown]
	from.by = int(-1 - shown)
	if at := sourceOf(p.g, src); at.Buffer == leaf.Buffer && at.Offset >= leaf.Offset {
		from.first = int(at.Offset-leaf.Offset) / 4
	}
	switch leaf.Name {
	case "inp_tokens":
		from.from = lookTokens
	case "inp_pos":
		from.from = lookPos
	case "inp_out_ids", "out_ids":
		from.from = lookOutputs
	default:
		from.from = lookStates
		if !leaf.Input {
			return from, false
		}
	}
	return from, true
}

// experts adds a read of the experts that were chosen. dim is the dimension that they are counted in.
func (p *planner) experts(n *ggmlhooks.Node, dim int, it *item) {
	ids, ok := n.SrcAt(2)
	if !ok || ids < 0 || it.at.block == 0 {
		it.flags |= memtrace.TraceUnknown
		it.at.block = 0
		p.fixed(it)
		return
	}
	it.kind, it.dim, it.rows = itemExperts, dim, lookup{from: lookExperts, by: int(ids)}
	p.add(it)
}

// written adds a write of rows into a cache, if it is reported which.
func (p *planner) written(n *ggmlhooks.Node, it *item) bool {
	index, _ := n.SrcAt(1)
	into, ok := n.SrcAt(2)
	values, _ := n.SrcAt(0)
	if !ok || it.at.block == 0 || p.p.tokens == 0 {
		return false
	}
	row := it.at.part(1, 0, 1)
	leaf := p.g.Origin(index)
	cache := p.cache(into)
	rows := elements(sourceOf(p.g, index).ne)
	if leaf < 0 || cache < 0 || rows%int64(p.p.tokens) != 0 {
		ne := sourceOf(p.g, values).ne
		p.somewhere(it, row.bytes(), ne[1]*ne[2]*ne[3])
		return true
	}
	it.kind, it.dim = itemWritten, 1
	it.cells = p.cellsOf(cache, leaf)
	it.cells.width = rows / int64(p.p.tokens)
	p.add(it)
	return true
}

// cache is the leaf of the cache's tensor that a source shows, or -1.
func (p *planner) cache(src int32) int {
	shown := p.g.Shown(src)
	if shown >= 0 {
		if n := &p.g.Nodes[shown]; n.Op == "SET_ROWS" || n.Op == "CPY" { // what was written before in this graph
			if into, ok := n.SrcAt(map[string]int{"SET_ROWS": 2, "CPY": 1}[n.Op]); ok && into != shown {
				return p.cache(into)
			}
		}
		return -1
	}
	if _, _, ok := ggmlhooks.CacheTensor(p.g.Leafs[-1-shown].Name); !ok {
		return -1
	}
	return int(-1 - shown)
}

func (p *planner) cellsOf(cache, leaf int) cells {
	l := &p.g.Leafs[cache]
	return cells{leaf: leaf, size: l.NE[1], plane: l.NB[2], origin: l.Offset, width: 1, streams: 1}
}

// masked adds a read of keys or values by a mask, if that is what it is.
func (p *planner) masked(i, k int, src int32, it *item) bool {
	n := &p.g.Nodes[i]
	mask, attends := p.masks[int32(i)]
	flash := n.Op == "FLASH_ATTN_EXT" && (k == 1 || k == 2)
	if !attends || mask == ggmlhooks.NoMask || !flash && (n.Op != "MUL_MAT" || k != 0) || it.at.block == 0 ||
		p.p.tokens == 0 {
		return false
	}
	cache := p.cache(src)
	if cache < 0 {
		return false
	}
	ne := p.g.Leafs[mask].NE
	it.dim = 1
	if part, _, _ := ggmlhooks.CacheTensor(p.g.Leafs[cache].Name); !flash && part == 'v' { // values lie transposed
		it.dim = 0
	}
	if ne[0] != it.at.ne[it.dim] || ne[3] != it.at.ne[3] || ne[3] < 1 || int64(p.p.tokens)%ne[3] != 0 {
		return false
	}
	it.kind, it.cells = itemMasked, p.cellsOf(cache, mask)
	it.cells.streams = ne[3]
	p.p.streams[mask] = ne[3]
	p.add(it)
	return true
}
