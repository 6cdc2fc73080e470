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

// pool is the slots of the shared memory. They are leased to readers of tensors, which give them back from any
// goroutine.
type pool struct {
	header *shmHeader
	slots  []byte
	ring   []uint64 // of slots that were given back

	returning sync.Mutex // serialises the returns of several workers
	leasing   sync.Mutex
	free      []*lease
}

func newPool(mem []byte, p plan) *pool {
	return &pool{
		header: (*shmHeader)(unsafe.Pointer(&mem[0])), slots: mem[p.slotsOffset:][:p.slots*SlotBytes],
		ring: unsafe.Slice((*uint64)(unsafe.Pointer(&mem[p.ringOffset])), p.ringEntries),
	}
}

// data returns the bytes of a captured piece; nil, false where there are no such slots.
func (p *pool) data(run slotRun, bytes uint64) ([]byte, bool) {
	start, size := uint64(run.first)*SlotBytes, uint64(run.count)*SlotBytes
	if start+size > uint64(len(p.slots)) || bytes > size {
		return nil, false
	}
	return p.slots[start : start+bytes : start+bytes], true
}

// lease returns the function that ends a new lease of run. It must be called exactly once.
func (p *pool) lease(run slotRun) func() {
	p.leasing.Lock()
	defer p.leasing.Unlock()
	var l *lease
	if n := len(p.free); n > 0 {
		l, p.free = p.free[n-1], p.free[:n-1]
	} else {
		l = &lease{}
		l.release = func() {
			p.giveBack(l.run)
			p.leasing.Lock()
			p.free = append(p.free, l)
			p.leasing.Unlock()
		}
	}
	l.run = run
	return l.release
}

// giveBack queues a run of slots for the tap, which clears their bits when it next needs slots. The ring has at
// least as many entries as there are slots, so it cannot overflow.
func (p *pool) giveBack(run slotRun) {
	h := p.header
	p.returning.Lock()
	head := h.RingHead
	p.ring[head&uint64(len(p.ring)-1)] = uint64(run.first)<<32 | uint64(run.count)
	atomic.StoreUint64(&h.RingHead, head+1)
	atomic.AddUint64(&h.Returned, uint64(run.count))
	p.returning.Unlock()
	h.madeRoom()
}

// madeRoom wakes threads of the model that wait, once there is as much room as they wait for.
func (h *shmHeader) madeRoom() {
	atomic.AddUint32(&h.Room, 1)
	if atomic.LoadUint32(&h.Waiting) > 0 && atomic.LoadUint64(&h.Returned) >= atomic.LoadUint64(&h.WakeReturned) {
		futex(&h.Room, futexWake, 1<<30, nil)
	}
}

const (
	futexWait = 0
	futexWake = 1
)

func futex(word *uint32, op int, value uint32, timeout *unix.Timespec) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(value),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
}
