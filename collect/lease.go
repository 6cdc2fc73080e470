//go:build linux

package collect

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hot path: returning a lease takes one lock and two stores; a system call only when the model waits.

// slotRun is some neighbouring slots.
type slotRun struct {
	first, count uint32
}

// lease is the right to read the bytes of some slots, with its release bound once, so that handing it out allocates
// nothing.
type lease struct {
	run     slotRun
	release func()
}

// leasePool hands out leases and takes them back when they are released, from any goroutine.
type leasePool struct {
	region *Region
	mu     sync.Mutex
	free   []*lease
}

// take returns the function that ends a new lease of run. It must be called exactly once.
func (p *leasePool) take(run slotRun) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var l *lease
	if n := len(p.free); n > 0 {
		l, p.free = p.free[n-1], p.free[:n-1]
	} else {
		l = &lease{}
		l.release = func() { p.end(l) }
	}
	l.run = run
	return l.release
}

func (p *leasePool) end(l *lease) {
	p.region.giveBack(l.run.first, l.run.count)
	p.mu.Lock()
	p.free = append(p.free, l)
	p.mu.Unlock()
}

// returnLane serialises the returns of several workers.
type returnLane struct{ sync.Mutex }

// giveBack queues a run of slots for the tap, which clears their bits when it next needs slots. The ring has at
// least as many entries as there are slots, so it cannot overflow.
func (r *Region) giveBack(first, count uint32) {
	h := r.header
	r.lanes.Lock()
	head := h.RingHead
	ring := unsafe.Slice((*uint64)(unsafe.Pointer(&r.mem[r.plan.ringOffset])), r.plan.ringEntries)
	ring[head&(r.plan.ringEntries-1)] = uint64(first)<<32 | uint64(count)
	atomic.StoreUint64(&h.RingHead, head+1)
	atomic.AddUint64(&h.Returned, uint64(count))
	r.lanes.Unlock()
	r.madeRoom()
}

// madeRoom wakes threads of the model that wait, once there is as much room as they wait for.
func (r *Region) madeRoom() {
	atomic.AddUint32(&r.header.Room, 1)
	if atomic.LoadUint32(&r.header.Waiting) > 0 && atomic.LoadUint64(&r.header.Returned) >= atomic.LoadUint64(&r.header.WakeReturned) {
		futex(&r.header.Room, futexWake, 1<<30, nil)
	}
}

const (
	futexWait = 0
	futexWake = 1
)

func futex(word *uint32, op int, value uint32, timeout *unix.Timespec) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(value), uintptr(unsafe.Pointer(timeout)), 0, 0)
}

// slots returns the bytes of a captured piece.
func (r *Region) slots(run slotRun, bytes uint64) ([]byte, bool) {
	if uint64(run.first)+uint64(run.count) > r.plan.slots || bytes > uint64(run.count)*SlotBytes {
		return nil, false
	}
	start := r.plan.slotsOffset + uint64(run.first)*SlotBytes
	return r.mem[start : start+bytes : start+bytes], true
}
