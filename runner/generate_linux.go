package runner

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// A Capture says which tensors [Generate] hands over, and to whom.
type Capture struct {
	// Tensors are globs on the names of nodes, with their layer or without it, such as "l_out-3" or "ffn_*"; none:
	// every node that computes.
	Tensors []string
	// OnTensor is called for each tensor of each micro-batch, in the order in which they were computed. It runs on
	// a goroutine of its own, one call at a time, whose thread has the lowest priority; while it is far behind, the
	// model waits. An error ends the generation.
	OnTensor func(*Tensor) error
}

// A Tensor is what a node of the graph computed for some neighbouring tokens.
type Tensor struct {
	Name   string   // of the node, such as l_out-3; a second one of that name is l_out-3#2
	Layer  int      // -1: it belongs to none
	Shape  [4]int64 // the first dimension is contiguous, as ggml counts them
	First  int64    // index of its first token, counted from the beginning of the prompt; -1: it is of no token
	Tokens int
	Phase  ggmlhooks.Phase
	Values []float32 // OnTensor may keep or change them no longer than it runs
}

// generating guards the tap, of which a process has one.
var generating sync.Mutex

// Generate is [Run] without a warm-up, in which each tensor that c asks for is handed over while the model
// computes. The priority of the process stays as it is. One Generate runs at a time, and no other call of this
// package may: its tensors would be handed over too. When it returns, all calls of OnTensor have.
func Generate(ctx context.Context, o Options, c Capture) (result Result, err error) {
	generating.Lock()
	defer generating.Unlock()
	selection := ggmlhooks.Selection{Tensors: c.Tensors}
	region, err := collect.NewRegion(collect.Options{Start: collect.Wish{Selection: selection}})
	if err != nil {
		return result, err
	}
	defer region.Close()
	if err := tap.Attach(int(region.File().Fd())); err != nil {
		return result, err
	}
	defer tap.Leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &handing{region: region, to: c.OnTensor, ended: make(chan struct{})}
	h.assembler = ggmlhooks.NewAssembler(0, capture.NewRecorder(capture.Options{Selection: selection, Stream: h}))
	h.assembler.Slots.Bound, h.assembler.Slots.Size = region.PoolBytes()/2, collect.SlotBytes
	handed := make(chan error, 1)
	aside(func() { handed <- h.run(cancel) })
	cfg := *o.Config
	cfg.Warmup = false
	o.Config = &cfg
	result, err = Run(ctx, o)
	tap.Detach()
	close(h.ended)
	if failed := <-handed; failed != nil {
		return result, failed
	}
	if err == nil && h.n == 0 && result.PromptTokens > 0 {
		err = fmt.Errorf("capture %s: no tensor that the model computes has such a name", strings.Join(c.Tensors, ", "))
	}
	return result, err
}

// aside runs f on a goroutine with a thread of its own, which ends with it: a priority that f takes is not left to
// another goroutine. It is not the process's first thread, which never ends.
func aside(f func()) {
	own := make(chan bool)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			aside(f) // on another one, since this goroutine keeps the first
			runtime.UnlockOSThread()
			close(own)
			return
		}
		close(own)
		f()
	}()
	<-own
}

// handing hands over what the tap copies. It is a capture.Stream for one goroutine.
type handing struct {
	region    *collect.Region
	assembler *ggmlhooks.Assembler
	to        func(*Tensor) error
	ended     chan struct{} // closed when the model is gone
	tensor    Tensor
	n         int64 // tensors handed over
}

// run reads until the model is gone, on a thread of its own.
func (h *handing) run(cancel context.CancelCauseFunc) error {
	const pause = 2 * time.Millisecond
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19) // of this thread; without it the model is a little slower
	reader := collect.NewReader(h.region, h.assembler)
	for gone := false; ; {
		select {
		case <-h.ended:
			gone = true
		default:
		}
		_, err := reader.Drain()
		if err == nil && gone {
			err = h.assembler.Close()
		}
		if err != nil {
			h.region.Stop() // a model that waits for room continues
			cancel(err)
		}
		if err != nil || gone {
			return err
		}
		reader.Sleep(pause)
	}
}

// Append hands a tensor over, one that comes in pieces with its last one.
func (h *handing) Append(p *stream.Packet, data []byte, release func()) error {
	t := &h.tensor
	if p.Block == 0 {
		t.Values = t.Values[:0]
	}
	var err error
	t.Values, err = codec.AppendFloat32(t.Values, data, codec.DTypeOf(p.SrcType))
	release()
	if err != nil {
		return fmt.Errorf("capture %s: %w", p.Name, err)
	}
	if p.Block+1 < cmp.Or(p.Blocks, 1) {
		return nil
	}
	h.n++
	t.Name, t.Layer, t.Shape, t.Phase = p.Name, int(p.Layer), p.NE, p.Phase
	t.First, t.Tokens = p.TokenFirst, int(p.TokenCount)
	return h.to(t)
}

// The rest of what a recording holds is not handed over.
func (h *handing) AppendExecution(*stream.Execution) error    { return nil }
func (h *handing) AppendRequest(ggmlhooks.RequestBegin) error { return nil }
func (h *handing) AppendResolution(stream.Resolution) error   { return nil }
func (h *handing) AppendStateLoad(stream.StateLoad) error     { return nil }
func (h *handing) Commit() error                              { return nil }
