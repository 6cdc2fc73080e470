package stream

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

// pool is room for tensors that are not packed yet, as the tap's: full, it lets the model go on when a quarter of
// it is free.
type pool struct {
	mu         sync.Mutex
	free       sync.Cond
	used, size int
	full       bool
}

func newPool(size int) *pool {
	p := &pool{size: size}
	p.free.L = &p.mu
	return p
}

func (p *pool) take(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = p.full || p.used+n > p.size
	for p.full {
		p.free.Wait()
	}
	p.used += n
}

func (p *pool) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.full && p.used <= p.size-p.size/4 {
		p.full = false
		p.free.Signal()
	}
}

// BenchmarkBurst is what a model waits for when it is faster than its recording: tokens of 440 tensors or 3.1 MB,
// as a model of 1B parameters has, through a full pool to a real disk. TMPDIR says which.
func BenchmarkBurst(b *testing.B) {
	for _, c := range []struct {
		id    codec.ID
		dtype codec.DType
	}{{codec.None, codec.F32}, {codec.None, codec.F16}, {codec.LZ4, codec.F16}, {codec.Zstd, codec.F16},
		{codec.Q, codec.F32}, {codec.QFSE, codec.F32}} {
		b.Run(fmt.Sprintf("%v/%v", c.id, c.dtype), func(b *testing.B) {
			w, err := Create(filepath.Join(b.TempDir(), "a"),
				Options{Codec: c.id, DType: c.dtype, MemoryBound: 40 << 20})
			if err != nil {
				b.Fatal(err)
			}
			burst(b, w)
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// burst appends a token per round.
func burst(b *testing.B, w *Writer) {
	var packets []Packet
	var data [][]byte
	var release []func()
	pool := newPool(96 << 20)
	for i, row := range [20]int64{7: 5120, 8: 5120, 12: 512, 13: 512, 14: 512, 15: 512, 16: 512, 17: 512, 18: 512,
		19: 512} {
		if row == 0 {
			row = 2048
		}
		packets = append(packets, Packet{Name: fmt.Sprint("node-", i), NE: [4]int64{row, 1, 1, 1}})
		data = append(data, normal(int(4*row)))
		release = append(release, func() { pool.give(int(4 * row)) })
	}
	const layers = 22
	size := 0
	for _, d := range data {
		size += layers * len(d)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for range layers {
			for i := range packets {
				pool.take(len(data[i]))
				if err := w.Append(&packets[i], data[i], release[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := w.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	s := w.Stats()
	b.ReportMetric(float64(s.PackNS)/float64(b.N)/1e6, "pack-ms/token")
	b.ReportMetric(float64(s.WriteNS)/float64(b.N)/1e6, "write-ms/token")
}
