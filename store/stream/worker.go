package stream

// Hot path: a worker takes a batch, packs it, and writes it if it is next.

import (
	"runtime"
	"sync"
	"time"
)

// pipeline packs queued batches side by side, and writes them in order.
type pipeline struct {
	o         *Options
	queue     *queue
	files     *files
	committed func()      // a commit marker was written; called with queue.mu held
	timer     *time.Timer // to flushCommitted
	workers   sync.WaitGroup
}

// start starts a worker for each packer.
func (w *pipeline) start(packers []*packer) {
	w.timer = time.AfterFunc(time.Hour, w.flushCommitted)
	w.timer.Stop()
	for _, k := range packers {
		w.workers.Go(func() { w.run(k) })
	}
}

// run is one worker.
func (w *pipeline) run(k *packer) {
	if w.o.OnWorkerStart != nil {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and what was set on it
		w.o.OnWorkerStart()
	}
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		b := q.nextBatch(w.o)
		if b == nil {
			return
		}
		failed := q.err != nil
		q.mu.Unlock()
		spent := b.pack(k, failed)
		k.trim(q.keep)
		q.mu.Lock()
		q.stats.PackNS += spent.Nanoseconds()
		b.done = true
		if !q.writing {
			w.writeDone()
		}
	}
}

// writeDone writes the finished batches whose turn it is, and flushes where that is due. mu is held at entry and
// exit, not while writing.
func (w *pipeline) writeDone() {
	q := w.queue
	q.writing = true
	for {
		switch {
		case len(q.order) > 0 && q.order[0].done:
			w.writeNext()
		case q.flushDue && q.err == nil:
			q.flushDue = false
			q.mu.Unlock()
			err := w.files.journal.flush()
			flushed := w.files.journal.mark()
			q.mu.Lock()
			if err != nil {
				q.fail(err)
			} else {
				q.flushed = flushed
			}
		default:
			q.writing = false
			q.wrote.Broadcast()
			return
		}
	}
}

// writeNext writes the batch that is next. mu is held at entry and exit.
func (w *pipeline) writeNext() {
	q := w.queue
	b := q.order[0]
	q.order = append(q.order[:0], q.order[1:]...) // at most a handful
	failed := q.err != nil
	var s Stats
	var o outcome
	err := b.err
	q.mu.Unlock()
	if !failed && err == nil {
		o, err = w.files.write(b, &s)
		s.FileBytes = uint64(w.files.stream.end() + w.files.index.end())
	}
	q.mu.Lock()
	q.add(s)
	q.ended += o.flushes
	if o.flushed != (Mark{}) {
		q.flushed = o.flushed
	}
	if o.committed {
		w.committed()
	}
	switch {
	case err != nil:
		q.fail(err)
	case o.committed && !q.armed:
		q.armed = true
		w.timer.Reset(commitDelay)
	}
	q.recycle(b)
}

// flushCommitted is what the timer does.
func (w *pipeline) flushCommitted() {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed, q.flushDue = false, true
	if !q.writing {
		w.writeDone()
	}
}

func (q *queue) add(s Stats) {
	q.stats.Packets += s.Packets
	q.stats.SrcBytes += s.SrcBytes
	q.stats.RawBytes += s.RawBytes
	q.stats.Stored += s.Stored
	q.stats.Saturated += s.Saturated
	q.stats.Underflow += s.Underflow
	q.stats.Error = q.stats.Error.Or(s.Error)
	q.stats.FileBytes = max(q.stats.FileBytes, s.FileBytes)
}

func (s *Stats) addPacket(p *Packet) {
	s.Packets++
	s.SrcBytes += uint64(p.SrcBytes)
	s.RawBytes += uint64(p.RawBytes)
	s.Stored += uint64(p.Stored)
	s.Saturated += p.Saturated
	s.Underflow += p.Underflow
	s.Error = s.Error.Or(p.Error)
}
