package synth

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/llamatap/llamatap/gguf"
)

// chunkValues is about how many values one job makes.
const chunkValues = 256 << 10

// job is a run of values of one tensor: whole blocks.
type job struct {
	part   *part
	key    uint64
	first  int64
	values int64
	result chan []byte
}

// Write makes the weights and writes the whole file to out. It works on all processors and keeps a few chunks per
// worker in memory, whatever the size of the model. progress, if not nil, is called with the bytes written so far of
// the
// file's size.
func (m *Model) Write(ctx context.Context, out io.Writer, progress func(done, size int64)) error {
	w, err := gguf.NewWriter(out, &m.Meta, m.Tensors())
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	workers := runtime.GOMAXPROCS(0)
	jobs, order := make(chan *job), make(chan *job, 2*workers)
	spare := make(chan []byte, 4*workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { work(jobs, spare) })
	}
	group.Go(func() { m.deal(inner, jobs, order) })
	err = drain(w, order, spare, progress)
	cancel()
	for range order { // the dealer may wait here
	}
	group.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// deal cuts the tensors into jobs, queues them in file order and hands them to the workers.
func (m *Model) deal(ctx context.Context, jobs, order chan<- *job) {
	defer close(order)
	defer close(jobs)
	for i := range m.parts {
		p := &m.parts[i]
		key := tensorKey(m.Config.Seed, p.tensor.Name)
		step := max(chunkValues/p.tensor.Type.BlockValues(), 1) * p.tensor.Type.BlockValues()
		for first := int64(0); first < p.tensor.Values(); first += step {
			j := &job{p, key, first, min(step, p.tensor.Values()-first), make(chan []byte, 1)}
			select {
			case order <- j:
			case <-ctx.Done():
				return
			}
			jobs <- j
		}
	}
}

// work makes the chunks of jobs until there are no more.
func work(jobs <-chan *job, spare chan []byte) {
	values := make([]float32, chunkValues)
	for j := range jobs {
		var dst []byte
		select {
		case dst = <-spare:
		default:
			dst = make([]byte, 0, 4*chunkValues)
		}
		v := values[:j.values]
		j.part.fill(v, j.key, j.first)
		dst, err := gguf.AppendRow(dst[:0], j.part.tensor.Type, v)
		if err != nil {
			panic(fmt.Sprintf("synth: %s: %v", j.part.tensor.Name, err)) // Plan has checked type and row
		}
		j.result <- dst
	}
}

// drain writes the chunks in order.
func drain(w *gguf.Writer, order <-chan *job, spare chan<- []byte, progress func(done, size int64)) error {
	for j := range order {
		p := <-j.result
		if _, err := w.Write(p); err != nil {
			return err
		}
		select {
		case spare <- p:
		default:
		}
		if progress != nil {
			progress(w.Written(), w.File().Size)
		}
	}
	return nil
}
