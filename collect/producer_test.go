//go:build linux

package collect

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// producer is a tap written in Go from the layout alone. Queue, ring and pool are used as cgo/tap uses them; it is
// for one goroutine and never waits.
type producer struct {
	mem  []byte
	h    *shmHeader
	used []bool
}

func newProducer(mem []byte) *producer {
	h := (*shmHeader)(unsafe.Pointer(&mem[0]))
	return &producer{mem: mem, h: h, used: make([]bool, h.NSlots)}
}

// rec gathers a record's bytes, without its header.
type rec []byte

func (r rec) u8(v ...uint8) rec { return append(r, v...) }
func (r rec) u16(v ...uint16) rec {
	for _, x := range v {
		r = binary.LittleEndian.AppendUint16(r, x)
	}
	return r
}
func (r rec) u32(v ...uint32) rec {
	for _, x := range v {
		r = binary.LittleEndian.AppendUint32(r, x)
	}
	return r
}
func (r rec) u64(v ...uint64) rec {
	for _, x := range v {
		r = binary.LittleEndian.AppendUint64(r, x)
	}
	return r
}
func (r rec) i32(v ...int32) rec {
	for _, x := range v {
		r = r.u32(uint32(x))
	}
	return r
}
func (r rec) text(s ...string) rec {
	for _, x := range s {
		r = append(r, x...)
	}
	return r
}

func (r rec) pad() rec {
	for len(r)%8 != 0 {
		r = append(r, 0xaa)
	}
	return r
}

// put writes one record. It reports false where there is no room.
func (p *producer) put(kind uint32, body rec) bool {
	size := uint64(8+len(body)+7) &^ 7
	head := p.h.QueueHead
	at := head & (p.h.QueueBytes - 1)
	pad := uint64(0)
	if left := p.h.QueueBytes - at; left < size {
		pad = left
	}
	if p.h.QueueBytes-(head-atomic.LoadUint64(&p.h.QueueTail)) < size+pad {
		return false
	}
	queue := p.mem[p.h.QueueOffset : p.h.QueueOffset+p.h.QueueBytes]
	if pad > 0 {
		copy(queue[at:], rec{}.u32(uint32(pad), recPad))
		at = 0
	}
	copy(queue[at:], rec{}.u32(uint32(size), kind))
	copy(queue[at+8:], body)
	atomic.StoreUint64(&p.h.QueueHead, head+pad+size)
	return true
}

// takeBack learns of returned slots.
func (p *producer) takeBack() (runs int) {
	ring := unsafe.Slice((*uint64)(unsafe.Pointer(&p.mem[p.h.RingOffset])), p.h.RingEntries)
	for ; p.h.RingTail != atomic.LoadUint64(&p.h.RingHead); runs++ {
		entry := ring[p.h.RingTail&(p.h.RingEntries-1)]
		for i := entry >> 32; i < entry>>32+entry&0xffffffff; i++ {
			if !p.used[i] {
				panic("a slot was given back that is not in use")
			}
			p.used[i] = false
		}
		atomic.StoreUint64(&p.h.RingTail, p.h.RingTail+1)
	}
	return runs
}

// reserve takes n neighbouring slots, or reports false.
func (p *producer) reserve(n int) (first int, ok bool) {
	p.takeBack()
	run := 0
	for i := range p.used {
		if run++; p.used[i] {
			run = 0
		}
		if run == n {
			for k := i - n + 1; k <= i; k++ {
				p.used[k] = true
			}
			return i - n + 1, true
		}
	}
	return 0, false
}

func (p *producer) slot(first, n int) []byte {
	start := p.h.SlotsOffset + uint64(first)*p.h.SlotBytes
	return p.mem[start : start+uint64(n)*p.h.SlotBytes]
}

// capture publishes the bytes that fill makes, as a tensor of one row. It reports false without room.
func (p *producer) capture(exec uint64, node int32, bytes int, fill func([]byte)) bool {
	n := (bytes + SlotBytes - 1) / SlotBytes
	first, ok := p.reserve(n)
	if !ok {
		return false
	}
	fill(p.slot(first, n)[:bytes])
	body := rec{}.u64(exec, 1, 77).i32(node).u32(uint32(first), uint32(n), 24).u64(uint64(bytes)).
		u64(uint64(bytes), 1, 1, 1).i32(0, 1).u32(0, 1).u64(0).u32(uint32(ggmlhooks.ForStream), 0)
	if !p.put(recCapture, body) {
		for i := first; i < first+n; i++ {
			p.used[i] = false
		}
		return false
	}
	return true
}

func node(name, op string, layer int32, srcs ...int32) rec {
	body := rec{}.i32(layer).u8(uint8(ggmlhooks.ComponentMLP), uint8(ggmlhooks.RowsTokens), 1,
		uint8(ggmlhooks.FromWeight))
	body = body.u8(2|4, uint8(len(srcs)), uint8(len(name)), uint8(len(op))).u16(1, 0, 1<<len(srcs)-1, 0).u64(3, 256).
		u64(32, 4, 1, 1).u64(4, 128, 512, 512).i32(1, 2, 3, 4, 5, 6, 7, 8)
	body = body.i32(srcs...).i32(-1).text(name, op)
	return entry(body)
}

func leaf(name string, input uint8) rec {
	return entry(rec{}.u16(1).u8(input, uint8(len(name))).u64(4, 512).u64(32, 4, 1, 1).u64(4, 128, 512, 512).text(name))
}

// entry puts the length before a node or leaf.
func entry(body rec) rec {
	return append(rec{}.u32(uint32(4+len(body)+7)&^7), body...).pad()
}

func newTestRegion(t testing.TB, o Options) *Region {
	t.Helper()
	if o.MemoryBytes == 0 {
		o.MemoryBytes = MinMemoryBytes
	}
	r, err := NewRegion(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}
