//go:build linux

package collect

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
)

// checkPlan says what every layout must be, whatever its size.
func checkPlan(t *testing.T, total int64) {
	t.Helper()
	o := Options{MemoryBytes: total}
	p, err := o.plan()
	if total != 0 && total < MinMemoryBytes {
		if !errors.Is(err, ErrMemory) {
			t.Fatalf("%d bytes: the error is %v, not ErrMemory", total, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%d bytes: %v", total, err)
	}
	if total == 0 {
		total = defaultMemoryBytes
	}
	power := func(n uint64) bool { return n != 0 && n&(n-1) == 0 }
	for _, check := range []struct {
		what string
		ok   bool
	}{
		{"the size is more than was asked for", p.size <= uint64(total)},
		{"more than a tenth of the memory is left over, or not pool", p.slots*SlotBytes*10 >= uint64(total)*6},
		{"the queue lies over the header", p.queueOffset >= headerBytes && p.queueOffset%8 == 0},
		{"the queue is no power of two", power(p.queueBytes) && p.queueBytes >= 65536},
		{"the ring lies over the queue", p.ringOffset >= p.queueOffset+p.queueBytes && p.ringOffset%8 == 0},
		{"the ring is too small or no power of two", power(p.ringEntries) && p.ringEntries >= p.slots},
		{"the slots lie over the ring", p.slotsOffset >= p.ringOffset+p.ringEntries*8 && p.slotsOffset%4096 == 0},
		{"the slots lie beyond the end", p.slotsOffset+p.slots*SlotBytes <= p.size},
		{"a quarter of the pool is smaller than a slot", p.slots >= 16},
	} {
		if !check.ok {
			t.Errorf("%d bytes: %s: %+v", total, check.what, p)
		}
	}
}

func TestPlan(t *testing.T) {
	for _, total := range []int64{0, -1, 1, MinMemoryBytes - 1, MinMemoryBytes, MinMemoryBytes + 1, 16 << 20, 256 << 20,
		1 << 40} {
		checkPlan(t, total)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		checkPlan(t, MinMemoryBytes+rng.Int64N(1<<(20+rng.IntN(20))))
	}
}

func TestRegionRefusesWhatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, o := range []Options{
		{Start: Wish{Selection: ggmlhooks.Selection{Tensors: []string{long}}}},
		{Start: Wish{Selection: ggmlhooks.Selection{Tensors: make([]string, maxGlobs+1)}}},
		{Backends: long},
	} {
		o.MemoryBytes = MinMemoryBytes
		if r, err := NewRegion(o); err == nil {
			r.Close()
			t.Errorf("accepted: %d globs, backends of %d bytes", len(o.Start.Selection.Tensors), len(o.Backends))
		}
	}
}

// The model's process holds the same file: it must not be able to take the memory from under the collector.
func TestRegionKeepsItsSize(t *testing.T) {
	r := newTestRegion(t, Options{})
	for _, size := range []int64{0, r.Size() - 4096, r.Size() + 4096} {
		if err := r.File().Truncate(size); !errors.Is(err, os.ErrPermission) {
			t.Errorf("cutting %d bytes to %d: %v", r.Size(), size, err)
		}
	}
}

func TestRegionCloseTwice(t *testing.T) {
	r, err := NewRegion(Options{MemoryBytes: MinMemoryBytes})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Leases end from many goroutines at once; each run of slots comes back exactly once, while the pool turns over.
func TestLeasesFromManyGoroutines(t *testing.T) {
	region := newTestRegion(t, Options{})
	p := newProducer(region.mem)
	held := make(chan func(), 64)
	s := &sink{hold: true}
	r := NewReader(region, s)
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for release := range held {
				release()
			}
		}()
	}
	const captures = 20000
	returned := 0
	for sent := 0; sent < captures; {
		if p.capture(uint64(sent), 0, 1+sent%(3*SlotBytes), func([]byte) {}) {
			sent++
		}
		drain(t, r)
		for _, release := range s.keep {
			held <- release
		}
		s.keep, s.data, s.said = s.keep[:0], s.data[:0], s.said[:0]
		returned += p.takeBack()
	}
	close(held)
	workers.Wait()
	p.takeBack() // panics where a slot comes back twice
	for i, used := range p.used {
		if used {
			t.Fatalf("slot %d never came back", i)
		}
	}
	if got := atomic.LoadUint64(&region.header.RingHead); got != captures {
		t.Errorf("%d runs came back of %d", got, captures)
	}
	if n := len(region.pool.free); n > 1000 {
		t.Errorf("%d leases are kept", n)
	}
}

// A thread of the model that waits for room is woken by a return of slots, not by its timeout.
func TestReturnWakesTheModel(t *testing.T) {
	region := newTestRegion(t, Options{})
	h := region.header
	woken := make(chan struct{})
	seen := atomic.LoadUint32(&h.Room)
	atomic.AddUint32(&h.Waiting, 1)
	go func() {
		futex(&h.Room, futexWait, seen, nil) // no timeout: without a wake this never ends
		close(woken)
	}()
	time.Sleep(10 * time.Millisecond)
	region.pool.giveBack(slotRun{3, 2})
	select {
	case <-woken:
	case <-time.After(testenv.Patience()):
		t.Fatal("the return of slots woke nobody")
	}
	atomic.AddUint32(&h.Waiting, ^uint32(0))
	if entry := *(*uint64)(unsafe.Pointer(&region.mem[h.RingOffset])); entry != 3<<32|2 {
		t.Errorf("the ring holds %x", entry)
	}
}

// A model that scribbles over the shared header must not bring the collector down.
func TestReaderTrustsNoHeader(t *testing.T) {
	region := newTestRegion(t, Options{})
	p := newProducer(region.mem)
	p.capture(1, 0, 100, func([]byte) {})
	r := NewReader(region, &sink{})
	h := region.header
	h.QueueOffset, h.QueueBytes, h.SlotsOffset, h.NSlots, h.SlotBytes = ^uint64(0), 7, ^uint64(0), 1<<60, 1<<60
	h.RingOffset, h.RingEntries = ^uint64(0), 3
	if _, err := r.Drain(); err != nil && !errors.Is(err, ErrQueue) {
		t.Error(err)
	}
	if region.PoolBytes() <= 0 || region.PoolBytes() > region.Size() {
		t.Errorf("the pool has %d bytes of %d", region.PoolBytes(), region.Size())
	}
}
