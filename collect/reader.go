//go:build linux

package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	region     *Region
	sink       ggmlhooks.Sink
	tail       uint64 // bytes read
	woken      uint64 // tail when the model was last woken
	graphs     graphs
	executions executions
	machine    machineReports
	awake      atomic.Bool // nothing is waited for any more
	Hellos     []Hello
}

// NewReader makes a reader of r that reports to sink.
func NewReader(r *Region, sink ggmlhooks.Sink) *Reader {
	reader := &Reader{region: r, sink: sink, tail: r.header.QueueTail, woken: r.header.QueueTail}
	reader.graphs = graphs{
		sink: sink, answer: r.answer, known: map[uint64]*ggmlhooks.Graph{}, newest: map[uint32]uint64{},
		left: map[uint64]int{}, differ: map[uint64]int{},
	}
	reader.executions = executions{
		sink: sink, graphs: &reader.graphs, pool: r.pool, losses: map[uint64][]ggmlhooks.Loss{},
	}
	reader.machine = machineReports{sink: sink, graphs: &reader.graphs}
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
		r.region.header.madeRoom()
	}
}

// amount is how much was read.
type amount struct{ bytes, pieces uint64 }

// read is how much was read up to now.
func (r *Reader) read() amount { return amount{r.tail, r.executions.pieces} }

// exceedsBatch reports whether enough was read since an earlier time that the reader should not wait for more: tensors,
// or a share of the queue.
func (r *Reader) exceedsBatch(since amount) bool {
	return r.executions.pieces != since.pieces || r.tail-since.bytes > r.region.plan.queueBytes/16
}

// leases is how many tensors, or parts of them, were handed out and not given back.
func (r *Reader) leases() int64 {
	return int64(r.executions.pieces - atomic.LoadUint64(&r.region.header.RingHead))
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
func (r *Reader) Sleep(d time.Duration) { r.sleep(d, sleepLight) }

// sleep is Sleep; a deep one ends, or does not begin, with anything to read.
func (r *Reader) sleep(d time.Duration, how uint32) {
	h := r.region.header
	word := atomic.LoadUint32(&h.Work)
	atomic.StoreUint32(&h.Sleeps, how)
	defer atomic.StoreUint32(&h.Sleeps, sleepNone)
	wanted := how == sleepDeep || atomic.LoadUint32(&h.Waiting) > 0
	if r.awake.Load() || wanted && atomic.LoadUint64(&h.QueueHead) != r.tail {
		return
	}
	timeout := unix.NsecToTimespec(int64(d))
	futex(&h.Work, futexWait, word, &timeout)
}

func (r *Reader) record(kind uint32, b []byte) error {
	d := decoder{b: b[8:]}
	switch kind {
	case recPad:
		return nil
	case recHello, recGoodbye:
		hello := Hello{PID: int(int32(d.u64())), MonoNS: int64(d.u64()), UnixNS: int64(d.u64())}
		hello.Last = kind == recGoodbye
		r.Hellos = append(r.Hellos, hello)
		return d.err(kind)
	case recContext:
		return readContext(&d, r.sink)
	case recCallEnd:
		return nil // executions have ends of their own
	case recGraph:
		return r.graphs.begin(&d)
	case recNodes, recLeafs:
		return r.graphs.nodes(&d, kind == recLeafs)
	case recChanges:
		return r.graphs.changes(&d)
	case recCall:
		return r.executions.readCall(&d)
	case recExec:
		return r.executions.readExec(&d)
	case recExecEnd:
		return r.executions.readEnd(&d)
	case recLosses:
		return r.executions.readLosses(&d)
	case recCapture:
		return r.executions.readCapture(&d)
	case recResolve:
		e := ggmlhooks.Resolve{Ctx: d.u32(), Discarded: d.u32() != 0, Exec: d.u64()}
		return d.then(kind, func() error { return r.sink.Resolve(e) })
	case recSeq:
		c := ggmlhooks.SeqChange{MonoNS: int64(d.u64()), Ctx: d.u32(), Kind: ggmlhooks.SeqChangeKind(d.u32())}
		c.Seq, c.To, c.First, c.End, c.Value = d.i32(), d.i32(), d.i32(), d.i32(), d.i32()
		return d.then(kind, func() error { return r.sink.SeqChange(&c) })
	case recBuffer:
		return readBuffer(&d, r.sink)
	case recBufferEnd:
		e := ggmlhooks.BufferEnd{ID: d.u64(), MonoNS: int64(d.u64())}
		return d.then(kind, func() error { return r.sink.BufferEnd(e) })
	case recSync:
		s := ggmlhooks.Sync{Exec: d.u64(), MonoNS: int64(d.u64()), WaitNS: int64(d.u64()), Graphs: int(d.u32())}
		return d.then(kind, func() error { return r.sink.Sync(s) })
	case recTimes:
		return r.machine.readTimes(&d)
	case recInput:
		return r.machine.readInput(&d)
	case recSample:
		return r.machine.readSample(&d)
	case recServed:
		s := ggmlhooks.Served{MonoNS: int64(d.u64()), BegunNS: int64(d.u64()), GrammarNS: int64(d.u64()), Key: d.u64()}
		s.Kind, s.Ctx, s.Row, s.Token, s.Value = ggmlhooks.ServedKind(d.u32()), d.u32(), d.i32(), d.i32(), d.u32()
		s.Line = d.text(int(d.u32()))
		return d.then(kind, func() error { return r.sink.Served(&s) })
	case recMoved:
		m := ggmlhooks.Moved{BegunNS: int64(d.u64()), MonoNS: int64(d.u64()), Buffer: d.u64(), Offset: d.u64(),
			Bytes: d.u64(), Addr: d.u64()}
		kind, flags := d.u32(), d.u32()
		m.Get, m.Async, m.Own = kind == movedGet, flags&movedAsync != 0, flags&movedOwn != 0
		name := int(d.u32())
		d.u32()
		m.Tensor = d.text(name)
		m.Copy = kind == movedCopy
		return d.then(recMoved, func() error { return r.sink.Moved(&m) })
	}
	return fmt.Errorf("%w: record type %d", ErrQueue, kind)
}

func readContext(d *decoder, sink ggmlhooks.Sink) error {
	c := ggmlhooks.Context{Number: d.u32(), Model: int(d.i32()), ModelBytes: d.u64(), ModelParams: d.u64()}
	c.LoadedNS = int64(d.u64())
	c.NCtx, c.NBatch, c.NUBatch, c.NSeqMax = d.u32(), d.u32(), d.u32(), d.u32()
	c.NLayer, c.NEmbd, c.NHead, c.NHeadKV = int(d.i32()), int(d.i32()), int(d.i32()), int(d.i32())
	c.NVocab, c.FileType = int(d.i32()), int(d.i32())
	memory := d.i32()
	c.Recurrent, c.Hybrid = memory == 1, memory == 2
	c.FlashAttn = int(d.i32())
	c.NCtxTrain, c.Window = int(d.i32()), int(d.i32())
	desc, path, arch, name := int(d.u16()), int(d.u16()), int(d.u16()), int(d.u16())
	c.Desc, c.Path, c.Arch, c.Name = d.text(desc), d.text(path), d.text(arch), d.text(name)
	return d.then(recContext, func() error { return sink.Context(&c) })
}
