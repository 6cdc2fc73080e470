package stream

// Hot path: a worker takes a batch, packs it, and writes it if it is next.

import (
	"runtime"
	"time"
)

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
		if int64(cap(k.scratch)) > q.keep {
			k.scratch = nil
		}
		q.mu.Lock()
		q.stats.PackNS += spent.Nanoseconds()
		b.done = true
		if !q.writing {
			w.writeDone()
		}
	}
}

// writeDone writes the finished batches whose turn it is. mu is held at entry and exit, not while writing.
func (w *Writer) writeDone() {
	q := w.queue
	q.writing = true
	for len(q.order) > 0 && q.order[0].done {
		b := q.order[0]
		q.order = append(q.order[:0], q.order[1:]...) // at most a handful
		failed := q.err != nil
		var s Stats
		var flushes uint64
		err := b.err
		q.mu.Unlock()
		if !failed && err == nil {
			start := time.Now()
			flushes, err = w.write(b, &s)
			s.WriteNS = time.Since(start).Nanoseconds()
		}
		q.mu.Lock()
		q.add(s)
		q.ended += flushes
		if err != nil {
			q.fail(err)
		} else if flushes > 0 {
			q.wrote.Broadcast()
		}
		q.recycle(b)
	}
	q.writing = false
}

func (q *queue) add(s Stats) {
	q.stats.Packets += s.Packets
	q.stats.SrcBytes += s.SrcBytes
	q.stats.RawBytes += s.RawBytes
	q.stats.Stored += s.Stored
	q.stats.Saturated += s.Saturated
	q.stats.Underflow += s.Underflow
	q.stats.WriteNS += s.WriteNS
}

// write puts a packed batch into both files and returns how many flushes were asked for in it.
func (w *Writer) write(b *batch, s *Stats) (flushes uint64, err error) {
	offset := w.stream.size + int64(len(w.stream.buf))
	if err := w.stream.write(b.out); err != nil {
		return 0, err
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
			err = w.journal.commit()
		case 0:
			flushes++
			err = w.journal.flush()
		default:
			err = w.journal.control(it)
		}
		if err != nil {
			return flushes, err
		}
	}
	return flushes, nil
}

func (s *Stats) addPacket(p *Packet) {
	s.Packets++
	s.SrcBytes += uint64(p.SrcBytes)
	s.RawBytes += uint64(p.RawBytes)
	s.Stored += uint64(p.Stored)
	s.Saturated += p.Saturated
	s.Underflow += p.Underflow
}
