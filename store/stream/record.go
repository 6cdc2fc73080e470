package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// node is what all packets of one node of a context's graphs have in common.
type node struct {
	name, node, op string
	occurrence     int
	layer          int32
	component      label.Component
	rows           label.RowKind
	rowDim         int8
	ctx            uint32
	srcType        int
}

func nodeOf(p *Packet) node {
	return node{p.Name, p.Node, p.Op, p.Occurrence, p.Layer, p.Component, p.Rows, p.RowDim, p.Ctx, p.SrcType}
}

func (n *node) fill(p *Packet) {
	p.Name, p.Node, p.Op, p.Occurrence, p.Layer = n.name, n.node, n.op, n.occurrence, n.layer
	p.Component, p.Rows, p.RowDim, p.Ctx, p.SrcType = n.component, n.rows, n.rowDim, n.ctx, n.srcType
}

func (n *node) append(dst []byte) []byte {
	dst = appendString(dst, n.name)
	dst = appendString(dst, n.node)
	dst = appendString(dst, n.op)
	dst = binary.AppendUvarint(dst, uint64(n.occurrence))
	dst = binary.AppendVarint(dst, int64(n.layer))
	dst = append(dst, byte(n.component), byte(n.rows), byte(n.rowDim))
	dst = binary.AppendUvarint(dst, uint64(n.ctx))
	return binary.AppendVarint(dst, int64(n.srcType))
}

func readNode(c *cursor) (n node) {
	n.name, n.node, n.op = c.string(), c.string(), c.string()
	n.occurrence = int(c.size(math.MaxInt32))
	n.layer = int32(c.int())
	n.component, n.rows, n.rowDim = label.Component(c.byte()), label.RowKind(c.byte()), int8(c.byte())
	n.ctx = uint32(c.size(math.MaxUint32))
	n.srcType = int(c.int())
	if n.rows > label.RowsOutputs || n.rowDim < 0 || n.rowDim > 3 || len(n.name) > maxName {
		c.fail()
	}
	return n
}

// appendPacket appends the payload of a packet record; times are stored against the header's.
func (h *Header) appendPacket(dst []byte, node uint64, p *Packet) []byte {
	var flags uint64
	if p.Saturated|p.Underflow != 0 {
		flags |= flagLosses
	}
	if p.Blocks > 1 {
		flags |= flagBlock
	}
	if p.SampleTotal != 0 {
		flags |= flagSample
	}
	if p.Error != (codec.Achieved{}) {
		flags |= flagError
	}
	if p.Rebuilt {
		flags |= flagRebuilt
	}
	dst = binary.AppendUvarint(dst, flags)
	dst = binary.AppendUvarint(dst, node)
	dst = binary.AppendUvarint(dst, uint64(p.Offset))
	dst = binary.AppendUvarint(dst, uint64(p.Stored))
	dst = binary.LittleEndian.AppendUint32(dst, p.CRC)
	dst = append(dst, byte(p.DType), byte(p.Codec), byte(p.Phase))
	dst = binary.AppendUvarint(dst, uint64(p.SrcBytes))
	dst = binary.AppendUvarint(dst, uint64(p.RawBytes))
	dst = binary.AppendUvarint(dst, p.Graph)
	dst = binary.AppendUvarint(dst, p.Exec)
	dst = binary.AppendVarint(dst, int64(p.NodeIndex))
	for _, n := range p.NE {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.AppendVarint(dst, p.TokenFirst)
	dst = binary.AppendUvarint(dst, uint64(p.TokenCount))
	dst = binary.AppendVarint(dst, p.TimeNS-h.TimeNS)
	dst = binary.AppendVarint(dst, p.MonoNS-h.MonoNS)
	if flags&flagLosses != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, p.Saturated), p.Underflow)
	}
	if flags&flagBlock != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(p.Block)), uint64(p.Blocks))
		dst = binary.AppendUvarint(dst, uint64(p.BlockStart))
	}
	if flags&flagSample != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, p.SampleSeed), uint64(p.SampleTotal))
	}
	if flags&flagError != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(p.Error.MaxAbs))
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(p.Error.NRMSE))
	}
	return dst
}

// readPacket fills p from a packet record's payload; nodes are those read so far, of which some may be lost.
func (h *Header) readPacket(payload []byte, nodes []node, lost []bool, p *Packet) error {
	*p = Packet{}
	c := cursor{b: payload}
	flags := c.uint()
	id := c.uint()
	p.Offset = c.size(math.MaxInt64 - packetHeader - maxName - maxPayload)
	p.Stored = c.size(maxPayload)
	p.CRC = c.uint32()
	p.DType, p.Codec, p.Phase = codec.DType(c.byte()), codec.ID(c.byte()), label.Phase(c.byte())
	p.SrcBytes, p.RawBytes = c.size(math.MaxInt64), c.size(math.MaxInt64)
	p.Graph, p.Exec = c.uint(), c.uint()
	p.NodeIndex = int32(c.int())
	for i := range p.NE {
		p.NE[i] = c.size(math.MaxInt64)
	}
	p.TokenFirst, p.TokenCount = c.int(), int32(c.size(math.MaxInt32))
	p.TimeNS, p.MonoNS = h.TimeNS+c.int(), h.MonoNS+c.int()
	if flags&flagLosses != 0 {
		p.Saturated, p.Underflow = c.uint(), c.uint()
	}
	if flags&flagBlock != 0 {
		p.Block, p.Blocks = uint32(c.size(math.MaxUint32)), uint32(c.size(math.MaxUint32))
		p.BlockStart = c.size(math.MaxInt64)
	}
	if flags&flagSample != 0 {
		p.SampleSeed, p.SampleTotal = c.uint(), c.size(math.MaxInt64)
	}
	if flags&flagError != 0 {
		p.Error = codec.Achieved{MaxAbs: math.Float32frombits(c.uint32()), NRMSE: math.Float32frombits(c.uint32())}
	}
	p.Rebuilt = flags&flagRebuilt != 0
	switch {
	case flags&^flagsKnown != 0:
		return fmt.Errorf("packet flags %#x: %w", flags, ErrVersion)
	case c.err == nil && !(p.Codec.Known() && p.DType.Known()):
		return fmt.Errorf("packet with %v and %v: %w: use a newer program", p.Codec, p.DType, ErrVersion)
	case c.done() != nil:
		return c.done()
	case id >= uint64(len(nodes)) || lost[id]:
		return fmt.Errorf("%w: node %d, whose record is not there", errField, id)
	}
	nodes[id].fill(p)
	return nil
}

func (h *Header) appendExecution(dst []byte, e *Execution) []byte {
	dst = binary.AppendUvarint(dst, e.Exec)
	dst = binary.AppendUvarint(dst, e.Graph)
	dst = binary.AppendUvarint(dst, uint64(e.Ctx))
	dst = append(dst, byte(e.Phase))
	dst = binary.AppendVarint(dst, e.TimeNS-h.TimeNS)
	dst = binary.AppendVarint(dst, e.MonoNS-h.MonoNS)
	dst = binary.AppendVarint(dst, e.TokenFirst)
	dst = binary.AppendUvarint(dst, uint64(len(e.Rows)))
	for i := range e.Rows {
		row := &e.Rows[i]
		output := byte(0)
		if row.Output {
			output = 1
		}
		dst = append(dst, byte(row.Phase), output)
		dst = binary.AppendVarint(dst, row.Index-e.TokenFirst-int64(i)) // 0 for consecutive rows
		dst = binary.AppendVarint(dst, int64(row.Token))
		dst = binary.AppendVarint(dst, int64(row.Pos))
		dst = binary.AppendUvarint(dst, uint64(len(row.Seqs)))
		for _, seq := range row.Seqs {
			dst = binary.AppendVarint(dst, int64(seq))
		}
	}
	return dst
}

// readExecution reads an execution record's payload.
func (h *Header) readExecution(payload []byte) (e Execution, err error) {
	c := cursor{b: payload}
	e.Exec, e.Graph = c.uint(), c.uint()
	e.Ctx = uint32(c.size(math.MaxUint32))
	e.Phase = label.Phase(c.byte())
	e.TimeNS, e.MonoNS = h.TimeNS+c.int(), h.MonoNS+c.int()
	e.TokenFirst = c.int()
	const leastRow = 6 // bytes
	rows := int(c.size(uint64(len(c.b) / leastRow)))
	e.Rows = make([]label.Row, rows)
	for i := range e.Rows {
		row := &e.Rows[i]
		row.Phase = label.Phase(c.byte())
		row.Output = c.byte() != 0
		row.Index = e.TokenFirst + int64(i) + c.int()
		row.Token, row.Pos, row.Request = int32(c.int()), int32(c.int()), label.RequestUnknown
		if n := int(c.size(uint64(len(c.b)))); n > 0 {
			row.Seqs = make([]int32, n)
		}
		for j := range row.Seqs {
			row.Seqs[j] = int32(c.int())
		}
	}
	return e, c.done()
}

func appendRequest(dst []byte, b *label.RequestBegin) []byte {
	dst = binary.AppendUvarint(dst, uint64(b.Ctx))
	dst = binary.AppendVarint(dst, int64(b.Seq))
	dst = binary.AppendUvarint(dst, uint64(b.Number))
	return append(dst, byte(b.Cause))
}

func readRequest(payload []byte) (b label.RequestBegin, err error) {
	c := cursor{b: payload}
	b.Ctx, b.Seq = uint32(c.size(math.MaxUint32)), int32(c.int())
	b.Number, b.Cause = int32(c.size(math.MaxInt32)), label.RequestCause(c.byte())
	return b, c.done()
}

func (l *Loss) append(dst []byte) []byte {
	dst = appendString(dst, l.Cause)
	dst = binary.AppendUvarint(dst, l.Packets)
	dst = binary.AppendUvarint(dst, l.Bytes)
	dst = binary.AppendUvarint(dst, l.FirstExec)
	return binary.AppendUvarint(dst, l.LastExec)
}

func readLoss(c *cursor) Loss {
	return Loss{Cause: c.string(), Packets: c.uint(), Bytes: c.uint(), FirstExec: c.uint(), LastExec: c.uint()}
}

func (r *Resolution) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.Ctx))
	dst = binary.AppendUvarint(dst, r.FirstExec)
	dst = binary.AppendUvarint(dst, r.LastExec)
	return append(dst, byte(r.Phase))
}

func readResolution(payload []byte) (r Resolution, err error) {
	c := cursor{b: payload}
	r.Ctx = uint32(c.size(math.MaxUint32))
	r.FirstExec, r.LastExec = c.uint(), c.uint()
	r.Phase = label.Phase(c.byte())
	return r, c.done()
}

// addLoss adds l to the entry of its cause.
func addLoss(losses []Loss, l Loss) []Loss {
	for i := range losses {
		if at := &losses[i]; at.Cause == l.Cause {
			at.Packets += l.Packets
			at.Bytes += l.Bytes
			at.FirstExec, at.LastExec = min(at.FirstExec, l.FirstExec), max(at.LastExec, l.LastExec)
			return losses
		}
	}
	return append(losses, l)
}
