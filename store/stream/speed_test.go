package stream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// discard is a File that takes everything.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Sync() error                 { return nil }
func (discard) Close() error                { return nil }

// Nothing is allocated per packet or execution once everything has grown, by no goroutine, whatever the codec.
func TestWriterAllocs(t *testing.T) {
	testenv.NotWithRace(t)
	c := newCapture(1, 9)
	big := Packet{Name: "big", Ctx: 1}
	data := make([]byte, 64<<10)
	for id := codec.None; id.Known(); id++ {
		for _, workers := range []int{1, 2} {
			w, err := New(discard{}, discard{}, Options{Codec: id, Workers: workers, Queue: 16})
			if err != nil {
				t.Fatal(err)
			}
			release := func() {}
			const rounds = 20
			run := func() {
				for range rounds {
					for i := range c.packets {
						w.Append(&c.packets[i], c.data[i], release)
					}
					w.Append(&big, data, release)
					w.AppendExecution(&c.executions[0])
					w.Commit()
				}
				w.Flush()
			}
			run()
			run()
			// Less than one per packet is what the runtime itself allocates for waiting goroutines.
			if n := testing.AllocsPerRun(20, run); n > rounds/2 {
				t.Errorf("%v, %d workers: %v allocations for %d packets", id, workers, n, rounds*(len(c.packets)+1))
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestReaderAllocs(t *testing.T) {
	c := newCapture(20, 3)
	stream, index := c.files(t, Options{Codec: codec.LZ4})
	r := open(t, stream, index)
	var p Packet
	var raw []byte
	var values []float32
	s := r.parts[0].borrow()
	run := func() {
		for i := range r.Len() {
			if err := r.Packet(i, &p); err != nil {
				t.Fatal(err)
			}
			raw, _ = r.parts[0].read(&p, raw[:0], s)
			if p.DType == codec.F16 {
				values, _ = codec.AppendFloat32(values[:0], raw, p.DType)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("%v allocations for %d packets", n, r.Len())
	}
}

// A writer holds no more than its bound, however slow the disk: here it does not move at all until released.
func TestMemoryBound(t *testing.T) {
	const bound = 1 << 20
	disk := &gated{entered: make(chan struct{}, 1), gate: make(chan struct{})}
	w, err := New(disk, discard{}, Options{Workers: 2, MemoryBound: bound, Queue: 4096})
	if err != nil {
		t.Fatal(err)
	}
	outputs := int64(behindBuffers*cap(w.files.stream.buf) + cap(w.files.index.buf))
	data := make([]byte, 256<<10)
	for range 100 {
		if err := w.Append(&Packet{Name: "x"}, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-disk.entered
	w.queue.mu.Lock()
	for !waitsForMemory(w) {
		w.queue.mu.Unlock()
		runtime.Gosched()
		w.queue.mu.Lock()
	}
	held := w.queue.held + outputs
	for _, b := range w.queue.free {
		held += int64(cap(b.out))
	}
	w.queue.mu.Unlock()
	if held > bound {
		t.Errorf("%d bytes are held, the bound is %d", held, bound)
	}
	close(disk.gate)
	if err := w.Close(); err != nil || w.Stats().Packets != 100 {
		t.Errorf("%v, %+v", err, w.Stats())
	}
}

// waitsForMemory reports whether a packet has to wait until a batch under way is written, with w.queue.mu held. A
// worker that waits for its first packet is idle, too.
func waitsForMemory(w *Writer) bool {
	q := w.queue
	return q.idle > 0 && q.count > 0 && len(q.free) > 0 && !q.admit(&batch{}, &q.ring[q.head], &w.o)
}

type gated struct {
	discard
	entered, gate chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	select {
	case g.entered <- struct{}{}:
	default: // it is known
	}
	<-g.gate
	return len(p), nil
}

// A real full disk.
func TestNoSpace(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v; this machine cannot have it", err)
	}
	index, err := os.Create(filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(full, index, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(&Packet{Name: "x"}, f32(1, 2, 3), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
}

func BenchmarkWriter(b *testing.B) {
	for _, size := range []int{8 << 10, 1 << 20} {
		for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
			for _, workers := range []int{1, 2} {
				b.Run(fmt.Sprintf("%dKiB/%v/%d", size>>10, id, workers), func(b *testing.B) {
					benchWriter(b, size, id, workers)
				})
			}
		}
	}
}

func benchWriter(b *testing.B, size int, id codec.ID, workers int) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	w, err := New(struct{ *os.File }{null}, discard{}, Options{Codec: id, Workers: workers})
	if err != nil {
		b.Fatal(err)
	}
	data := normal(size)
	p := Packet{Name: "l_out-0"}
	release := func() {}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Append(&p, data, release); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	s := w.Stats()
	b.ReportMetric(float64(s.PackNS)/float64(s.Packets), "pack-ns/op")
	b.ReportMetric(float64(s.WriteNS)/float64(s.Packets), "write-ns/op")
}

func BenchmarkOpen(b *testing.B) {
	stream, index := newCapture(300, 30).files(b, Options{})
	b.SetBytes(int64(len(index)))
	for b.Loop() {
		if r := open(b, stream, index); r.Len() != 9000 {
			b.Fatal(r.Len())
		}
	}
	b.ReportMetric(float64(len(index))/9000, "index-B/packet")
}
