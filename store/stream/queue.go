package stream

import (
	"cmp"
	"sync"
)

// queue hands items from the writer's caller to its workers in batches, and batches to the files in the order in
// which their items came. Whoever finishes the batch that is next writes it, and all finished ones after it: no
// goroutine exists for writing alone, and none is woken for a packet while another is at work.
//
// Three kinds of goroutines wait: callers for room, workers for items, and callers of Flush for the files.
type queue struct {
	mu    sync.Mutex
	room  sync.Cond // callers wait for: count < len(ring), or err, or closed
	work  sync.Cond // workers wait for: something to take
	wrote sync.Cond // Flush waits for: flushed

	ring        []item
	head, count int
	idle        int // workers that wait

	free     []*batch
	order    []*batch // under way, in the order of their items
	writing  bool     // somebody is writing
	armed    bool     // a flush will be due
	flushDue bool     // it is
	workers  int

	held, bound  int64 // bytes that batches under way may hold; at most, unless one batch alone needs more
	keep         int64 // most bytes of a buffer that is kept
	asked, ended uint64
	flushed      Mark  // everything before it is in both files
	err          error // first error; sticks
	closed       bool
	stats        Stats
}

func newQueue(o *Options) *queue {
	batches := 2 * o.Workers
	q := &queue{ring: make([]item, o.Queue), workers: o.Workers, bound: max(o.MemoryBound-o.outputs(), 0) / 2}
	q.keep = q.bound / int64(batches+o.Workers)
	q.room.L, q.work.L, q.wrote.L = &q.mu, &q.mu, &q.mu
	for range batches {
		q.free = append(q.free, &batch{items: make([]item, 0, batchItems)})
	}
	return q
}

// reserve waits for room and returns the ring's next entry, with mu held; publish or q.mu.Unlock follows.
func (q *queue) reserve() (*item, error) {
	q.mu.Lock()
	for q.count == len(q.ring) && q.err == nil && !q.closed {
		q.room.Wait()
	}
	if q.err != nil || q.closed {
		defer q.mu.Unlock()
		return nil, cmp.Or(q.err, ErrClosed)
	}
	return &q.ring[(q.head+q.count)%len(q.ring)], nil
}

// put queues an entry that fill completes.
func (q *queue) put(fill func(*item)) error {
	it, err := q.reserve()
	if err != nil {
		return err
	}
	fill(it)
	q.publish()
	return nil
}

// publish makes the reserved entry visible to the workers.
func (q *queue) publish() {
	q.count++
	if q.idle > 0 {
		q.work.Signal()
	}
	q.mu.Unlock()
}

// nextBatch waits for items and moves a share of them into a batch; nil when the queue is closed and empty.
func (q *queue) nextBatch(o *Options) *batch {
	for {
		if q.count > 0 && len(q.free) > 0 {
			if b := q.fill(o); b != nil {
				return b
			}
		} else if q.count == 0 && q.closed {
			q.work.Broadcast() // those who wait for a batch or for memory end, too
			return nil
		}
		q.idle++
		q.work.Wait()
		q.idle--
	}
}

// fill moves items into a free batch; nil if memory is short until a batch under way is written.
func (q *queue) fill(o *Options) *batch {
	b := q.free[len(q.free)-1]
	*b = batch{items: b.items[:0], out: b.out}
	share := min(batchItems, (q.count+q.workers-1)/q.workers)
	for source := 0; len(b.items) < share; {
		it := &q.ring[q.head]
		if it.kind == recordPacket {
			source += len(it.data)
			if !q.admit(b, it, o) || b.need > 0 && source > batchBytes {
				break
			}
			need, scratch := o.need(&it.packet, len(it.data))
			b.need, b.scratch = b.need+need, max(b.scratch, scratch)
		}
		n := len(b.items)
		b.items = b.items[:n+1]
		b.items[n], *it = *it, b.items[n] // swapped, as each keeps a buffer
		q.head = (q.head + 1) % len(q.ring)
		q.count--
	}
	if len(b.items) == 0 {
		return nil
	}
	q.free = q.free[:len(q.free)-1]
	q.order = append(q.order, b)
	q.held += b.need + b.scratch
	q.room.Broadcast()
	if q.count > 0 && q.idle > 0 {
		q.work.Signal()
	}
	return b
}

// admit reports whether memory allows for one more packet. One that is too large for the bound goes when nothing else
// is held.
func (q *queue) admit(b *batch, it *item, o *Options) bool {
	need, scratch := o.need(&it.packet, len(it.data))
	total := q.held + b.need + need + max(b.scratch, scratch)
	return total <= q.bound || q.held+b.need == 0
}

// recycle takes a written batch back.
func (q *queue) recycle(b *batch) {
	q.held -= b.need + b.scratch
	if int64(cap(b.out)) > q.keep {
		b.out = nil
	}
	q.free = append(q.free, b)
	if q.count > 0 && q.idle > 0 {
		q.work.Signal()
	}
}

// takeOver waits until nobody writes, and keeps it so. It returns the first error.
func (q *queue) takeOver() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing {
		q.wrote.Wait()
	}
	q.writing = true
	return q.err
}

// fail keeps the first error and wakes everybody who waits for something that will not come.
func (q *queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
	q.room.Broadcast()
	q.wrote.Broadcast()
}
