//go:build linux

package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"golang.org/x/sys/unix"
)

// Hot path: one decode per record, no allocation per capture in steady state.

// ErrQueue occurs when the queue holds something that no tap of this version writes.
var ErrQueue = errors.New("the tap's queue is damaged")

// Hello is the tap's first word, or its last.
type Hello struct {
	PID    int
	MonoNS int64
	UnixNS int64
	Last   bool
}

// Reader decodes the queue of one Region and hands what it finds to a sink. It is for one goroutine.
type Reader struct {
	region  *Region
	sink    ggmlhooks.Sink
	tail    uint64                      // bytes read
	woken   uint64                      // tail when the model was last woken
	graphs  map[uint64]*ggmlhooks.Graph // descriptions that are still arriving, or in use
	latest  map[uint32]uint64           // newest graph of each context
	left    map[uint64]int              // nodes and leafs, or changes, that are still to come
	call    ggmlhooks.Call
	exec    ggmlhooks.Exec
	capture ggmlhooks.Capture
	losses  map[uint64][]ggmlhooks.Loss // of executions that have not ended
	times   ggmlhooks.Times
	input   ggmlhooks.Input
	sample  ggmlhooks.Sample
	part    bool // the input that is being read has more records to come
	read    amount
	awake   atomic.Bool // nothing is waited for any more
	leases  leasePool
	Hellos  []Hello
}

// NewReader makes a reader of r that reports to sink.
func NewReader(r *Region, sink ggmlhooks.Sink) *Reader {
	reader := &Reader{region: r, sink: sink, tail: r.header.QueueTail, woken: r.header.QueueTail, graphs: map[uint64]*ggmlhooks.Graph{}, latest: map[uint32]uint64{}, left: map[uint64]int{}}
	reader.leases.region = r
	return reader
}

// Drain reads everything that the queue holds now and returns the number of records.
func (r *Reader) Drain() (int, error) {
	h, size := r.region.header, r.region.plan.queueBytes
	queue := r.region.mem[r.region.plan.queueOffset:][:size]
	n := 0
	r.publish(true) // what ended the Drain before
	for head := atomic.LoadUint64(&h.QueueHead); r.tail != head; n++ {
		unread := head - r.tail
		if unread > size {
			return n, fmt.Errorf("%w: %d bytes are said to be unread in a queue of %d", ErrQueue, unread, size)
		}
		at := r.tail & (size - 1)
		bytes := uint64(binary.LittleEndian.Uint32(queue[at:]))
		kind := binary.LittleEndian.Uint32(queue[at+4:])
		if bytes < 8 || bytes%8 != 0 || bytes > size-at || bytes > unread {
			return n, fmt.Errorf("%w: a record of %d bytes at %d", ErrQueue, bytes, r.tail)
		}
		err := r.record(kind, queue[at:at+bytes])
		r.tail += bytes
		r.read.bytes += bytes
		if err != nil {
			return n, err // a model that waits for this record to be dealt with waits until the next Drain
		}
		r.publish(r.tail == head || r.tail-r.woken >= size/8)
	}
	return n, nil
}

// publish makes room in the queue for what was read. A model that waits is woken when that is an eighth of the
// queue or all that there was, not for each record.
func (r *Reader) publish(wake bool) {
	if h := r.region.header; h.QueueTail != r.tail {
		atomic.StoreUint64(&h.QueueTail, r.tail)
	}
	if wake && r.woken != r.tail {
		r.woken = r.tail
		r.region.madeRoom()
	}
}

// amount is how much was read.
type amount struct{ bytes, pieces uint64 }

// exceedsBatch reports whether enough was read since an earlier time that the reader should not wait for more.
func (a amount) exceedsBatch(since amount) bool {
	return a.pieces != since.pieces || a.bytes-since.bytes > 64<<10
}

// wakeAt ends the Sleep when one of the channels is closed, and each that follows, until what it returns is called.
func (r *Reader) wakeAt(first, second <-chan struct{}) (end func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-first:
		case <-second:
		case <-quit:
			return
		}
		r.awake.Store(true)
		atomic.AddUint32(&r.region.header.Work, 1)
		futex(&r.region.header.Work, futexWake, 1, nil)
	}()
	return func() { close(quit); <-ended; r.awake.Store(false) }
}

// Sleep waits until the tap wants room, or for d. Where the model waits for what lies in the queue it returns at once.
func (r *Reader) Sleep(d time.Duration) {
	h := r.region.header
	word := atomic.LoadUint32(&h.Work)
	atomic.StoreUint32(&h.Sleeps, 1)
	if r.awake.Load() || atomic.LoadUint32(&h.Waiting) > 0 && atomic.LoadUint64(&h.QueueHead) != r.tail {
		atomic.StoreUint32(&h.Sleeps, 0)
		return
	}
	timeout := unix.NsecToTimespec(int64(d))
	futex(&h.Work, futexWait, word, &timeout)
	atomic.StoreUint32(&h.Sleeps, 0)
}

func (r *Reader) record(kind uint32, b []byte) error {
	d := decoder{b: b[8:]}
	switch kind {
	case recPad:
		return nil
	case recHello, recGoodbye:
		r.Hellos = append(r.Hellos, Hello{PID: int(int32(d.u64())), MonoNS: int64(d.u64()), UnixNS: int64(d.u64()), Last: kind == recGoodbye})
		return d.err(kind)
	case recContext:
		return r.context(&d)
	case recCall:
		return r.readCall(&d)
	case recCallEnd:
		return nil // executions have ends of their own
	case recGraph:
		return r.graph(&d)
	case recNodes, recLeafs:
		return r.nodes(&d, kind == recLeafs)
	case recChanges:
		return r.changes(&d)
	case recExec:
		return r.readExec(&d)
	case recExecEnd:
		e := ggmlhooks.ExecEnd{Number: d.u64(), MonoNS: int64(d.u64()), Status: int(d.i32()), Async: d.u32() != 0, BeginNS: int64(d.u64())}
		e.Selected.Packets, e.Selected.Bytes, e.OwnNS, e.WaitNS = d.u64(), d.u64(), int64(d.u64()), int64(d.u64())
		e.Cuts, e.CutNS = int64(d.u64()), int64(d.u64())
		return d.then(kind, func() error { return r.execEnd(e) })
	case recLosses:
		return r.readLosses(&d)
	case recCapture:
		return r.readCapture(&d)
	case recResolve:
		e := ggmlhooks.Resolve{Ctx: d.u32(), Discarded: d.u32() != 0, Exec: d.u64()}
		return d.then(kind, func() error { return r.sink.Resolve(e) })
	case recSeq:
		c := ggmlhooks.SeqChange{MonoNS: int64(d.u64()), Ctx: d.u32(), Kind: ggmlhooks.SeqChangeKind(d.u32())}
		c.Seq, c.To, c.First, c.End, c.Value = d.i32(), d.i32(), d.i32(), d.i32(), d.i32()
		return d.then(kind, func() error { return r.sink.SeqChange(&c) })
	case recBuffer, recBufferEnd, recTimes, recInput, recSample, recSync:
		return r.machine(kind, &d)
	}
	return fmt.Errorf("%w: record type %d", ErrQueue, kind)
}

func (r *Reader) context(d *decoder) error {
	c := ggmlhooks.Context{Number: d.u32(), Model: int(d.i32()), ModelBytes: d.u64(), ModelParams: d.u64(), LoadedNS: int64(d.u64())}
	c.NCtx, c.NBatch, c.NUBatch, c.NSeqMax = d.u32(), d.u32(), d.u32(), d.u32()
	c.NLayer, c.NEmbd, c.NHead, c.NHeadKV, c.NVocab = int(d.i32()), int(d.i32()), int(d.i32()), int(d.i32()), int(d.i32())
	c.FileType = int(d.i32())
	memory := d.i32()
	c.Recurrent, c.Hybrid = memory == 1, memory == 2
	c.FlashAttn = int(d.i32())
	c.NCtxTrain = int(d.i32())
	d.i32()
	desc, path, arch, name := int(d.u16()), int(d.u16()), int(d.u16()), int(d.u16())
	c.Desc, c.Path, c.Arch, c.Name = d.text(desc), d.text(path), d.text(arch), d.text(name)
	return d.then(recContext, func() error { return r.sink.Context(&c) })
}

// readCall joins the chunks of a long call and reports it when its last row is there.
func (r *Reader) readCall(d *decoder) error {
	number, mono := d.u64(), int64(d.u64())
	ctx, kind, flags := d.u32(), d.u32(), d.u32()
	total, first, rows, extras := int(d.u32()), int(d.u32()), int(d.u32()), int(d.u32())
	d.u32()
	c := &r.call
	if first != 0 && (c.Number != number || first != len(c.Rows)) {
		c.Number = 0 // a part of this call was dropped, and counted: the whole call is lost
		return nil
	}
	if first == 0 {
		*c = ggmlhooks.Call{Number: number, Ctx: ctx, Kind: ggmlhooks.CallKind(kind), MonoNS: mono, Read: flags&1 != 0, Accepts: flags&2 != 0, Rows: c.Rows[:0]}
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
	return r.sink.Call(c)
}

func (r *Reader) readExec(d *decoder) error {
	e := &r.exec
	tokens, pos, outputs := e.Tokens[:0], e.Pos[:0], e.Outputs[:0]
	*e = ggmlhooks.Exec{Number: d.u64(), Graph: d.u64(), Call: d.u64(), MonoNS: int64(d.u64()), TokenFirst: int64(d.u64()), Ctx: d.u32()}
	e.Reused, e.Provisional, e.Captured = d.u32() != 0, d.u32() != 0, d.u32() != 0
	nTokens, nPos, nOutputs := int(d.u32()), int(d.u32()), int(d.u32())
	e.Left = ggmlhooks.NoWindow
	if left := d.u32(); left != math.MaxUint32 {
		e.Left = int64(left)
	}
	e.Tokens = d.i32s(tokens, nTokens)
	e.Pos = d.i32s(pos, nPos)
	e.Outputs = d.i32s(outputs, nOutputs)
	if d.bad {
		return d.err(recExec)
	}
	return r.sink.Exec(e)
}

// readLosses keeps what was lost of an execution for its end.
func (r *Reader) readLosses(d *decoder) error {
	exec := d.u64()
	now := losses(nil, func(int) ggmlhooks.Count { return ggmlhooks.Count{Packets: d.u64(), Bytes: d.u64()} })
	if r.losses == nil {
		r.losses = map[uint64][]ggmlhooks.Loss{}
	}
	r.losses[exec] = now
	return d.err(recLosses)
}

func (r *Reader) execEnd(e ggmlhooks.ExecEnd) error {
	e.Losses = r.losses[e.Number]
	delete(r.losses, e.Number)
	return r.sink.ExecEnd(e)
}

func (r *Reader) readCapture(d *decoder) error {
	c := &r.capture
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
	c.For = ggmlhooks.Purpose(d.u32())
	if d.bad {
		return d.err(recCapture)
	}
	if g := r.graphs[c.Graph]; g != nil && !hasNode(g, c.Node) {
		return fmt.Errorf("%w: a tensor of node %d of graph %d, which has %d", ErrQueue, c.Node, c.Graph, len(g.Nodes))
	}
	data, ok := r.region.slots(run, bytes)
	if !ok {
		return fmt.Errorf("%w: a tensor in %d slots from %d on, of %d", ErrQueue, run.count, run.first, r.region.plan.slots)
	}
	r.read.pieces++
	c.Data = data
	c.Release = r.leases.take(run)
	return r.sink.Capture(c)
}
