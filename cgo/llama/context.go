//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Context is what one or several sequences of a model are decoded in: its memory, buffers and threads. It belongs to
// one goroutine at a time, which should be locked to its thread; only Interrupt may be called from anywhere.
type Context struct {
	c       *C.struct_llama_context
	model   *Model
	signal  *signal
	threads C.struct_bridge_threads
	watch   *C.struct_bridge_watch // nil without ContextParams.Watch

	adapters []*Adapter // that are set
}

// DefaultContextParams returns llama.cpp's defaults.
func DefaultContextParams() ContextParams {
	d := C.llama_context_default_params()
	return ContextParams{
		Size: int(d.n_ctx), Batch: int(d.n_batch), MicroBatch: int(d.n_ubatch), Sequences: int(d.n_seq_max),
		Threads: int(d.n_threads), BatchThreads: int(d.n_threads_batch),
		FlashAttention: FlashAttention(d.flash_attn_type), TypeK: CacheType(d.type_k), TypeV: CacheType(d.type_v),
		NoPerf: bool(d.no_perf), Unified: bool(d.kv_unified),
		Embeddings: bool(d.embeddings), Pooling: Pooling(d.pooling_type), Attention: Attention(d.attention_type),
		SlidingFull: bool(d.swa_full),
		Rope: Rope{
			Scaling: RopeScaling(d.rope_scaling_type), FreqBase: float32(d.rope_freq_base),
			FreqScale:       float32(d.rope_freq_scale),
			YarnOrigContext: int(d.yarn_orig_ctx), YarnExtFactor: float32(d.yarn_ext_factor),
			YarnAttnFactor: float32(d.yarn_attn_factor),
			YarnBetaFast:   float32(d.yarn_beta_fast), YarnBetaSlow: float32(d.yarn_beta_slow),
		},
	}
}

// NewContext makes a context. The error is ErrContext with llama.cpp's reason.
func (m *Model) NewContext(params ContextParams) (*Context, error) {
	if m.c == nil {
		return nil, fmt.Errorf("make a context: the model is %w", ErrClosed)
	}
	why, stop := collectErrors()
	defer stop()
	p := params.c()
	if params.Sampler != nil {
		config := (*C.struct_llama_sampler_seq_config)(C.calloc(1,
			C.size_t(unsafe.Sizeof(C.struct_llama_sampler_seq_config{}))))
		defer C.free(unsafe.Pointer(config))
		config.sampler = params.Sampler.c.chain
		p.samplers, p.n_samplers = config, 1
		params.Sampler.c.backend = true
	}
	var watch *C.struct_bridge_watch
	if params.Watch {
		watch = (*C.struct_bridge_watch)(C.calloc(1, C.size_t(unsafe.Sizeof(C.struct_bridge_watch{}))))
		C.bridge_watch_params(&p, watch)
	}
	c := C.llama_init_from_model(m.c, p)
	if c == nil {
		C.free(unsafe.Pointer(watch))
		return nil, why(ErrContext)
	}
	x := &Context{c: c, model: m, signal: newSignal(), watch: watch}
	C.bridge_context_signal(c, x.signal.c)
	C.bridge_threads_attach(c, C.int(params.Threads), C.int(params.BatchThreads), &x.threads)
	m.contexts.Add(1)
	return x, nil
}

func (p *ContextParams) c() C.struct_llama_context_params {
	c := C.llama_context_default_params()
	c.n_ctx, c.n_batch, c.n_ubatch = C.uint32_t(p.Size), C.uint32_t(p.Batch), C.uint32_t(p.MicroBatch)
	c.n_seq_max = C.uint32_t(p.Sequences)
	c.n_threads, c.n_threads_batch = C.int32_t(p.Threads), C.int32_t(p.BatchThreads)
	c.flash_attn_type = int32(p.FlashAttention)
	c.type_k, c.type_v = uint32(p.TypeK), uint32(p.TypeV)
	c.no_perf, c.kv_unified, c.swa_full = C.bool(p.NoPerf), C.bool(p.Unified), C.bool(p.SlidingFull)
	c.embeddings, c.pooling_type, c.attention_type = C.bool(p.Embeddings), int32(p.Pooling), int32(p.Attention)
	c.rope_scaling_type, c.rope_freq_base, c.rope_freq_scale = int32(p.Rope.Scaling), C.float(p.Rope.FreqBase),
		C.float(p.Rope.FreqScale)
	c.yarn_orig_ctx, c.yarn_ext_factor, c.yarn_attn_factor = C.uint32_t(p.Rope.YarnOrigContext),
		C.float(p.Rope.YarnExtFactor), C.float(p.Rope.YarnAttnFactor)
	c.yarn_beta_fast, c.yarn_beta_slow = C.float(p.Rope.YarnBetaFast), C.float(p.Rope.YarnBetaSlow)
	return c
}

// Close frees the context and its threads.
func (x *Context) Close() {
	if x.c == nil {
		return
	}
	C.llama_free(x.c)
	C.bridge_threads_free(&x.threads)
	x.signal.free()
	x.freeWatch()
	x.c = nil
	x.releaseAdapters()
	x.model.contexts.Add(-1)
}

// Size is the length of the context in tokens, as llama.cpp rounded it.
func (x *Context) Size() int { return int(C.llama_n_ctx(x.c)) }

// SequenceSize is the length in tokens of each of its sequences.
func (x *Context) SequenceSize() int { return int(C.llama_n_ctx_seq(x.c)) }

// Sequences is the most sequences that are decoded at a time.
func (x *Context) Sequences() int { return int(C.llama_n_seq_max(x.c)) }

// Batch is the most tokens per Decode.
func (x *Context) Batch() int { return int(C.llama_n_batch(x.c)) }

// MicroBatch is the most tokens per graph.
func (x *Context) MicroBatch() int { return int(C.llama_n_ubatch(x.c)) }

// Decode computes a batch. It blocks until the work is handed over; Synchronize or Logits waits for the result. Errors:
// ErrNoSlot and ErrBatch leave the context as it was, ErrInterrupted and ErrDecode keep the micro-batches that were
// computed.
func (x *Context) Decode(b *Batch) error {
	if x.c == nil || b.capacity == 0 {
		return fmt.Errorf("decode: context or batch is %w", ErrClosed)
	}
	rc := C.bridge_decode(x.c, b.c)
	if rc == 0 {
		return nil
	}
	return fmt.Errorf("decode %d tokens: %w", b.Len(), x.failed(int(rc)))
}

func (x *Context) decodeError(rc int) error {
	switch {
	case x.signal.stopped():
		return ErrInterrupted
	case rc == 1:
		return ErrNoSlot
	case rc == -1:
		return ErrBatch
	}
	return fmt.Errorf("%w (status %d)", ErrDecode, rc)
}

// Interrupt ends a running Decode within an operation of its graph, on the CPU, and lets those that follow fail with
// ErrInterrupted until Resume. Any goroutine may call it, until Close.
func (x *Context) Interrupt() { x.signal.stop() }

// Resume takes Interrupt back.
func (x *Context) Resume() { x.signal.clear() }

// Synchronize waits until all work is done.
func (x *Context) Synchronize() { C.llama_synchronize(x.c) }

// Logits are the logits of output i of the last batch: its index in the batch, or -1 for the last output. The slice is
// C memory, one value per token of the vocabulary, and valid until the next call on this context. It waits for the
// result.
func (x *Context) Logits(i int) ([]float32, error) {
	p := C.llama_get_logits_ith(x.c, C.int32_t(i))
	if p == nil {
		return nil, fmt.Errorf("read logits %d: %w", i, ErrNoLogits)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), x.model.vocab.n), nil
}

// PerfReset starts llama.cpp's measuring again.
func (x *Context) PerfReset() { C.llama_perf_context_reset(x.c) }
