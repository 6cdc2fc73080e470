//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// Model is a loaded model. Its methods may be called by several goroutines at a time, Close only when nothing else uses
// it.
type Model struct {
	c        *C.struct_llama_model
	vocab    Vocab
	contexts atomic.Int32 // contexts that are not closed
	adapters atomic.Int32 // adapters that are not closed
}

// DefaultModelParams returns llama.cpp's defaults.
func DefaultModelParams() ModelParams {
	d := C.llama_model_default_params()
	return ModelParams{GPULayers: int(d.n_gpu_layers), Load: LoadMode(d.load_mode), CheckTensors: bool(d.check_tensors)}
}

// LoadModel loads the model of a GGUF file, with all files of a split model. It calls Init. When ctx ends, loading
// stops within a tensor and the error is ErrInterrupted with the cause of ctx; otherwise it is ErrLoad or ErrDevice.
func LoadModel(ctx context.Context, path string, params ModelParams) (*Model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return load(ctx, params, func(p C.struct_llama_model_params) (*C.struct_llama_model, error) {
		return C.llama_model_load_from_file(name, p), nil
	})
}

// LoadModelBytes loads a model from the bytes of a GGUF file, through a file in memory of the given name. The bytes are
// copied. Otherwise it is LoadModel.
func LoadModelBytes(ctx context.Context, name string, gguf []byte, params ModelParams) (*Model, error) {
	if len(gguf) == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrLoad, name)
	}
	return load(ctx, params, func(p C.struct_llama_model_params) (*C.struct_llama_model, error) {
		cname := C.CString(name)
		defer C.free(unsafe.Pointer(cname))
		file, err := C.bridge_memory_file(cname, unsafe.Pointer(unsafe.SliceData(gguf)), C.size_t(len(gguf)))
		if file == nil {
			return nil, fmt.Errorf("%w: make a file in memory of %d bytes: %w", ErrLoad, len(gguf), err)
		}
		defer C.fclose(file) // what is mapped stays mapped
		return C.llama_model_load_from_file_ptr(file, p), nil
	})
}

// load prepares what a load needs, runs it, and watches ctx and the progress meanwhile.
func load(ctx context.Context, params ModelParams, run func(C.struct_llama_model_params) (*C.struct_llama_model,
	error)) (*Model, error) {
	if err := Init(); err != nil {
		return nil, err
	}
	p, release, err := params.c()
	if err != nil {
		return nil, err
	}
	defer release()
	signal := newSignal()
	defer signal.free()
	C.bridge_model_params(&p, signal.c)
	why, stopCollecting := collectErrors()
	defer stopCollecting()

	stopWatching := watchLoad(ctx, signal, params.Progress)
	c, err := run(p)
	stopWatching()
	switch {
	case err != nil:
		return nil, err
	case c == nil && ctx.Err() != nil:
		return nil, fmt.Errorf("load model: %w: %w", ErrInterrupted, context.Cause(ctx))
	case c == nil:
		return nil, why(ErrLoad)
	}
	m := &Model{c: c}
	m.vocab.c = C.llama_model_get_vocab(c)
	m.vocab.n = int(C.llama_vocab_n_tokens(m.vocab.c))
	return m, nil
}

// watchLoad reports progress and passes the end of ctx on until stop is called; stop returns when no further report
// will come.
func watchLoad(ctx context.Context, signal *signal, progress func(float64)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		interrupted := ctx.Done()
		for {
			select {
			case <-done:
				return
			case <-interrupted:
				signal.stop()
				interrupted = nil
			case <-tick.C:
				if progress != nil {
					progress(signal.fraction())
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// c translates the parameters; release frees what the result points to.
func (p *ModelParams) c() (c C.struct_llama_model_params, release func(), err error) {
	c = C.llama_model_default_params()
	c.n_gpu_layers = C.int32_t(p.GPULayers)
	c.load_mode = int32(p.Load)
	c.check_tensors = C.bool(p.CheckTensors)
	c.use_extra_bufts = c.use_extra_bufts && C.bool(!p.Plain)
	if p.Devices == nil {
		return c, func() {}, nil
	}
	// ends with NULL
	array := (*C.ggml_backend_dev_t)(C.calloc(C.size_t(len(p.Devices)+1), C.size_t(unsafe.Sizeof(c.devices))))
	release = func() { C.free(unsafe.Pointer(array)) }
	devices := unsafe.Slice(array, len(p.Devices))
	for i, name := range p.Devices {
		if devices[i], err = findDevice(name); err != nil {
			release()
			return c, nil, err
		}
	}
	c.devices = array
	return c, release, nil
}

func findDevice(name string) (C.ggml_backend_dev_t, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	if dev := C.ggml_backend_dev_by_name(cname); dev != nil {
		return dev, nil
	}
	var names []string
	for _, d := range Devices() {
		if d.Kind != DeviceCPU {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w as %q: this machine or build has none but the CPU; leave --device out",
			ErrDevice, name)
	}
	return nil, fmt.Errorf("%w as %q: there are %q", ErrDevice, name, names)
}

// Close frees the model. Its contexts and adapters must be closed before; the error says that some are not, and then
// nothing is freed.
func (m *Model) Close() error {
	if n := m.contexts.Load() + m.adapters.Load(); n != 0 {
		return fmt.Errorf("close model: %d of its contexts and adapters are still open", n)
	}
	if m.c != nil {
		C.llama_model_free(m.c)
		m.c, m.vocab.c = nil, nil
	}
	return nil
}

// Vocab is the model's vocabulary; it belongs to the model.
func (m *Model) Vocab() *Vocab { return &m.vocab }

// Description is llama.cpp's one-line name of the model, such as "llama 1B Q8_0".
func (m *Model) Description() string {
	var buf [256]C.char
	C.llama_model_desc(m.c, &buf[0], C.size_t(len(buf)))
	return C.GoString(&buf[0])
}

// Meta is a scalar value of the model's GGUF metadata as text.
func (m *Model) Meta(key string) (value string, ok bool) {
	ckey := C.CString(key)
	defer C.free(unsafe.Pointer(ckey))
	for size := 256; ; {
		buf := make([]C.char, size)
		n := int(C.llama_model_meta_val_str(m.c, ckey, &buf[0], C.size_t(size)))
		switch {
		case n < 0:
			return "", false
		case n < size:
			return C.GoString(&buf[0]), true
		}
		size = n + 1
	}
}

// Size is the size of all weights in bytes.
func (m *Model) Size() uint64 { return uint64(C.llama_model_size(m.c)) }

// Parameters is the number of weights.
func (m *Model) Parameters() uint64 { return uint64(C.llama_model_n_params(m.c)) }

// Layers is the number of layers.
func (m *Model) Layers() int { return int(C.llama_model_n_layer(m.c)) }

// Width is the length of the residual stream.
func (m *Model) Width() int { return int(C.llama_model_n_embd(m.c)) }

// TrainedContext is the length of the texts that the model was trained on, in tokens.
func (m *Model) TrainedContext() int { return int(C.llama_model_n_ctx_train(m.c)) }

// Recurrent reports whether some layers keep a state of each sequence in place of its tokens' keys and values.
func (m *Model) Recurrent() bool {
	return bool(C.llama_model_is_recurrent(m.c)) || bool(C.llama_model_is_hybrid(m.c))
}

// HasEncoder reports whether a prompt goes through an encoder first (T5 and its kin).
func (m *Model) HasEncoder() bool { return bool(C.llama_model_has_encoder(m.c)) }

// HasDecoder reports whether the model can generate tokens.
func (m *Model) HasDecoder() bool { return bool(C.llama_model_has_decoder(m.c)) }

// signal is memory that llama.cpp's callbacks and Go share.
type signal struct{ c *C.struct_bridge_signal }

func newSignal() *signal {
	return &signal{c: (*C.struct_bridge_signal)(C.calloc(1, C.size_t(unsafe.Sizeof(C.struct_bridge_signal{}))))}
}

func (s *signal) free() { C.free(unsafe.Pointer(s.c)) }

func (s *signal) stop() { atomic.StoreInt32((*int32)(&s.c.stop), 1) }

func (s *signal) stopped() bool { return atomic.LoadInt32((*int32)(&s.c.stop)) != 0 }

func (s *signal) clear() { atomic.StoreInt32((*int32)(&s.c.stop), 0) }

func (s *signal) fraction() float64 {
	return float64(math.Float32frombits(atomic.LoadUint32((*uint32)(&s.c.fraction))))
}
