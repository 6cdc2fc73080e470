package stream

// Hot path: a worker takes a batch, packs it, and writes it if it is next.

import "runtime"

// run is one worker.
func (w *Writer) run(k *packer) {
	if w.o.OnWorkerStart != nil {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and what was set on it
		w.o.OnWorkerStart()
	}
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		b := q.take(&w.o)
		if b == nil {
			return
		}
		failed := q.err != nil
		q.mu.Unlock()
		spent := b.pack(k, failed)
		k.trim(q.keep)
		q.mu.Lock()
		q.stats.PackNS += spent.Nanoseconds()
		q.stats.Error = q.stats.Error.Or(k.worst)
		b.done = true
		if !q.writing {
			w.writeDone()
		}
	}
}

// writeDone writes the finished batches whose turn it is, and flushes where that is due. mu is held at entry and
// exit, not while writing.
func (w *Writer) writeDone() {
	q := w.queue
	q.writing = true
	for {
		switch {
		case len(q.order) > 0 && q.order[0].done:
			w.writeNext()
		case q.flushDue && q.err == nil:
			q.flushDue = false
			q.mu.Unlock()
			err := w.journal.flush()
			flushed := w.journal.mark()
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
func (w *Writer) writeNext() {
	q := w.queue
	b := q.order[0]
	q.order = append(q.order[:0], q.order[1:]...) // at most a handful
	failed := q.err != nil
	var s Stats
	var o outcome
	err := b.err
	q.mu.Unlock()
	if !failed && err == nil {
		o, err = w.write(b, &s)
		s.FileBytes = uint64(w.stream.end() + w.index.end())
	}
	q.mu.Lock()
	q.add(s)
	q.ended += o.flushes
	if o.flushed != (Mark{}) {
		q.flushed = o.flushed
	}
	if o.committed {
		w.syncDue()
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
func (w *Writer) flushCommitted() {
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
	q.stats.FileBytes = max(q.stats.FileBytes, s.FileBytes)
}

// outcome says what a batch held beside packets.
type outcome struct {
	flushes   uint64 // that were asked for
	flushed   Mark   // by the last of them that did it; zero: none
	committed bool   // there is a commit marker
}

// write puts a packed batch into both files.
func (w *Writer) write(b *batch, s *Stats) (o outcome, err error) {
	defer func() { w.teeOut(b.out) }()
	offset := w.stream.end()
	if err := w.stream.write(b.out); err != nil {
		return o, err
	}
	for i := range b.items {
		it := &b.items[i]
		switch it.kind {
		case recordPacket:
			p := &it.packet
			p.Offset = offset
			offset += packetHeader + int64(len(p.Name)) + p.Stored
			err = w.journal.packet(p)
			s.addPacket(p)
		case recordCommit:
			o.committed = true
			err = w.journal.commit()
		case 0:
			o.flushes++
			if err = w.journal.flush(); err == nil {
				o.flushed = w.journal.mark()
			}
		default:
			err = w.journal.control(it)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// teeOut hands on what was written: bytes of the stream, and the records since the last time.
func (w *Writer) teeOut(out []byte) {
	if w.o.Tee == nil {
		return
	}
	if len(out) > 0 {
		w.o.Tee(false, out)
	}
	if len(w.journal.tee) > 0 {
		w.o.Tee(true, w.journal.tee)
		w.journal.tee = w.journal.tee[:0]
	}
}

func (s *Stats) addPacket(p *Packet) {
	s.Packets++
	s.SrcBytes += uint64(p.SrcBytes)
	s.RawBytes += uint64(p.RawBytes)
	s.Stored += uint64(p.Stored)
	s.Saturated += p.Saturated
	s.Underflow += p.Underflow
}
