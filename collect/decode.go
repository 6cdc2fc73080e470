//go:build linux

package collect

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// decoder takes little-endian values from a record. Past the end it returns zeros and sets bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) has(n int) bool {
	if n < 0 || n > len(d.b) {
		d.bad = true
	}
	return !d.bad
}

func (d *decoder) take(n int) []byte {
	if !d.has(n) {
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) i32() int32 { return int32(d.u32()) }

func (d *decoder) text(n int) string { return string(d.take(n)) }

func (d *decoder) i32s(dst []int32, n int) []int32 {
	if n < 0 || n > len(d.b)/4 {
		d.bad = true
		return dst
	}
	for range n {
		dst = append(dst, d.i32())
	}
	return dst
}

func (d *decoder) err(kind uint32) error {
	if d.bad {
		return fmt.Errorf("%w: a record of type %d is too short", ErrQueue, kind)
	}
	return nil
}

func (d *decoder) then(kind uint32, next func() error) error {
	if err := d.err(kind); err != nil {
		return err
	}
	return next()
}

// sub takes the rest of an entry whose first four bytes, already taken, say how long it is.
func (d *decoder) sub(bytes uint32) decoder {
	if bytes < 4 {
		d.bad = true
	}
	return decoder{b: d.take(int(bytes) - 4), bad: d.bad}
}

func (d *decoder) node() ggmlhooks.Node {
	e := d.sub(d.u32())
	n := ggmlhooks.Node{Layer: int(e.i32())}
	n.Component, n.Rows = ggmlhooks.Component(e.u8()), ggmlhooks.RowKind(e.u8())
	n.RowDim = int(e.u8())
	n.Inferred = ggmlhooks.InferredFrom(e.u8())
	flags, srcs, name, op := e.u8(), int(e.u8()), int(e.u8()), int(e.u8())
	n.View, n.Wanted, n.Computed, n.Routing = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&16 != 0
	n.Occurrence, n.Type, n.Slots, n.Number = int(e.u16()), int(e.u16()), e.u16(), int(e.u16())
	n.Place = e.place()
	e.shape(&n.NE, &n.NB)
	for i := range n.OpParams {
		n.OpParams[i] = e.i32()
	}
	n.Src = e.i32s(nil, srcs)
	n.Alias = int(e.i32())
	n.Name, n.Op = e.text(name), e.text(op)
	d.bad = d.bad || e.bad || n.Rows > ggmlhooks.RowsOutputs || n.RowDim > 3 || bits.OnesCount16(n.Slots) != srcs
	return n
}

func (d *decoder) place() ggmlhooks.Place {
	return ggmlhooks.Place{Buffer: d.u64(), Offset: d.u64()}
}

func (d *decoder) leaf() ggmlhooks.Leaf {
	e := d.sub(d.u32())
	l := ggmlhooks.Leaf{Type: int(e.u16()), Input: e.u8() != 0}
	name := int(e.u8())
	l.Place = e.place()
	e.shape(&l.NE, &l.NB)
	l.Name = e.text(name)
	d.bad = d.bad || e.bad
	return l
}

// What a change is followed by.
const (
	changePlace = 1 << iota
	changeShape
)

// change takes what has changed of a node or leaf, and puts it into the graph.
func (d *decoder) change(g *ggmlhooks.Graph) {
	e := d.sub(d.u32())
	which, of, rows, rowDim := int(e.i32()), e.u8(), ggmlhooks.RowKind(e.u8()), int(e.u8())
	e.take(5)
	if e.bad || !hasNode(g, which) || rows > ggmlhooks.RowsOutputs || rowDim > 3 {
		d.bad = true
		return
	}
	var place *ggmlhooks.Place
	var ne *[4]int64
	var nb *[4]uint64
	var params *[8]int32
	if which >= 0 {
		n := &g.Nodes[which]
		n.Rows, n.RowDim = rows, rowDim
		place, ne, nb, params = &n.Place, &n.NE, &n.NB, &n.OpParams
	} else {
		l := &g.Leafs[-1-which]
		place, ne, nb = &l.Place, &l.NE, &l.NB
	}
	if of&changePlace != 0 {
		*place = e.place()
	}
	if of&changeShape != 0 {
		e.shape(ne, nb)
		for i := 0; params != nil && i < len(params); i++ {
			params[i] = e.i32()
		}
	}
	d.bad = d.bad || e.bad
}

// shape takes sizes, and strides in bytes.
func (d *decoder) shape(ne *[4]int64, nb *[4]uint64) {
	for i := range ne {
		ne[i] = int64(d.u64())
	}
	for i := range nb {
		nb[i] = d.u64()
	}
}
