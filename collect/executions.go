//go:build linux

package collect

import (
	"fmt"
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Hot path: one decode per record, no allocation per capture in steady state.

// executions reads the records of calls, executions and tensors.
type executions struct {
	sink    ggmlhooks.Sink
	graphs  *graphs
	pool    *pool
	call    ggmlhooks.Call
	exec    ggmlhooks.Exec
	capture ggmlhooks.Capture
	losses  map[uint64][]ggmlhooks.Loss // of executions that have not ended
	pieces  uint64                      // of tensors that were read
}

// readCall joins the chunks of a long call and reports it when its last row is there.
func (x *executions) readCall(d *decoder) error {
	number, mono := d.u64(), int64(d.u64())
	ctx, kind, flags := d.u32(), d.u32(), d.u32()
	total, first, rows, extras := int(d.u32()), int(d.u32()), int(d.u32()), int(d.u32())
	d.u32()
	c := &x.call
	if first != 0 && (c.Number != number || first != len(c.Rows)) {
		c.Number = 0 // a part of this call was dropped, and counted: the whole call is lost
		return nil
	}
	if first == 0 {
		*c = ggmlhooks.Call{
			Number: number, Ctx: ctx, Kind: ggmlhooks.CallKind(kind), MonoNS: mono, Read: flags&1 != 0,
			Accepts: flags&2 != 0, Rows: c.Rows[:0],
		}
	}
	if !d.has(rows*16 + extras*4) {
		return d.err(recCall)
	}
	extra := decoder{b: d.b[rows*16:]}
	for i := 0; i < rows; i++ {
		row := ggmlhooks.CallRow{Token: d.i32(), Pos: d.i32()}
		row.Seqs = append(row.Seqs, d.i32())
		more := int(d.u16()) - 1
		row.Output = d.u16() != 0
		for ; more > 0 && len(extra.b) >= 4; more-- {
			row.Seqs = append(row.Seqs, extra.i32())
		}
		c.Rows = append(c.Rows, row)
	}
	if first+rows < total {
		return nil
	}
	return x.sink.Call(c)
}

func (x *executions) readExec(d *decoder) error {
	e := &x.exec
	tokens, pos, outputs := e.Tokens[:0], e.Pos[:0], e.Outputs[:0]
	*e = ggmlhooks.Exec{
		Number: d.u64(), Graph: d.u64(), Call: d.u64(), MonoNS: int64(d.u64()), TokenFirst: int64(d.u64()),
		Ctx: d.u32(),
	}
	e.Reused, e.Provisional, e.Captured = d.u32() != 0, d.u32() != 0, d.u32() != 0
	nTokens, nPos, nOutputs := int(d.u32()), int(d.u32()), int(d.u32())
	e.Left = ggmlhooks.NoWindow
	if left := d.u32(); left != math.MaxUint32 {
		e.Left = int64(left)
	}
	e.Steer = d.u32()
	d.u32()
	e.Tokens = d.i32s(tokens, nTokens)
	e.Pos = d.i32s(pos, nPos)
	e.Outputs = d.i32s(outputs, nOutputs)
	if d.bad {
		return d.err(recExec)
	}
	return x.sink.Exec(e)
}

// readLosses keeps what was lost of an execution for its end.
func (x *executions) readLosses(d *decoder) error {
	exec := d.u64()
	now := losses(nil, func(int) ggmlhooks.Count { return ggmlhooks.Count{Packets: d.u64(), Bytes: d.u64()} })
	x.losses[exec] = now
	return d.err(recLosses)
}

func (x *executions) readEnd(d *decoder) error {
	e := ggmlhooks.ExecEnd{Number: d.u64(), MonoNS: int64(d.u64()), Status: int(d.i32()), Async: d.u32() != 0}
	e.BeginNS = int64(d.u64())
	e.Selected.Packets, e.Selected.Bytes, e.OwnNS, e.WaitNS = d.u64(), d.u64(), int64(d.u64()), int64(d.u64())
	e.WaitBeforeNS = int64(d.u64())
	e.Cuts, e.CutNS = int64(d.u64()), int64(d.u64())
	if d.bad {
		return d.err(recExecEnd)
	}
	e.Losses = x.losses[e.Number]
	delete(x.losses, e.Number)
	return x.sink.ExecEnd(e)
}

func (x *executions) readCapture(d *decoder) error {
	c := &x.capture
	*c = ggmlhooks.Capture{Exec: d.u64(), Graph: d.u64(), MonoNS: int64(d.u64()), Node: int(d.i32())}
	run := slotRun{d.u32(), d.u32()}
	c.Type = int(d.u32())
	bytes := d.u64()
	for i := range c.NE {
		c.NE[i] = int64(d.u64())
	}
	c.RowFirst, c.RowCount = int(d.i32()), int(d.i32())
	c.Block, c.Blocks = int(d.u32()), int(d.u32())
	c.BlockStart = int64(d.u64())
	c.For, c.Cut = ggmlhooks.Purpose(d.u32()), d.u32() != 0
	if d.bad {
		return d.err(recCapture)
	}
	if g := x.graphs.known[c.Graph]; g != nil && !hasNode(g, c.Node) {
		return fmt.Errorf("%w: a tensor of node %d of graph %d, which has %d", ErrQueue, c.Node, c.Graph, len(g.Nodes))
	}
	data, ok := x.pool.data(run, bytes)
	if !ok {
		return fmt.Errorf("%w: a tensor in %d slots from %d on, of %d",
			ErrQueue, run.count, run.first, len(x.pool.slots)/SlotBytes)
	}
	x.pieces++
	c.Data = data
	c.Release = x.pool.lease(run)
	return x.sink.Capture(c)
}
