//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Adapter is a LoRA adapter of a model. It belongs to the model, and takes effect in contexts by Context.SetAdapters.
type Adapter struct {
	c        *C.struct_llama_adapter_lora
	model    *Model
	contexts atomic.Int32 // contexts that it is set in
}

// LoadAdapter loads the adapter of a GGUF file. Contexts that are to use it are made after that. The error is
// ErrAdapter with llama.cpp's reason. There are broken files at which llama.cpp ends the process: CheckAdapter of
// package gguf refuses them.
func (m *Model) LoadAdapter(path string) (*Adapter, error) {
	if m.c == nil {
		return nil, fmt.Errorf("load an adapter: the model is %w", ErrClosed)
	}
	why, stop := collectErrors()
	defer stop()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	c := C.llama_adapter_lora_init(m.c, name)
	if c == nil {
		return nil, why(ErrAdapter)
	}
	m.adapters.Add(1)
	return &Adapter{c: c, model: m}, nil
}

// Close frees the adapter. It must not be set in an open context; the error says that it is, and then nothing is freed.
func (a *Adapter) Close() error {
	if n := a.contexts.Load(); n != 0 {
		return fmt.Errorf("close adapter: it is set in %d contexts", n)
	}
	if a.c != nil {
		C.llama_adapter_lora_free(a.c)
		a.c = nil
		a.model.adapters.Add(-1)
	}
	return nil
}

// SetAdapters lets these adapters, and no others, take part in what the context computes from now on, each with its
// scale.
func (x *Context) SetAdapters(adapters []ScaledAdapter) error {
	if x.c == nil {
		return fmt.Errorf("set adapters: the context is %w", ErrClosed)
	}
	list := make([]*C.struct_llama_adapter_lora, len(adapters)+1)
	scales := make([]C.float, len(adapters)+1)
	for i, a := range adapters {
		if a.Adapter.c == nil || a.Adapter.model != x.model {
			return fmt.Errorf("set adapters: %w: number %d is closed, or of another model", ErrAdapter, i+1)
		}
		list[i], scales[i] = a.Adapter.c, C.float(a.Scale)
	}
	if rc := C.llama_set_adapters_lora(x.c, &list[0], C.size_t(len(adapters)), &scales[0]); rc != 0 {
		return fmt.Errorf("set adapters: %w (status %d)", ErrAdapter, int(rc))
	}
	x.releaseAdapters()
	for _, a := range adapters {
		a.Adapter.contexts.Add(1)
		x.adapters = append(x.adapters, a.Adapter)
	}
	return nil
}

func (x *Context) releaseAdapters() {
	for _, a := range x.adapters {
		a.contexts.Add(-1)
	}
	x.adapters = nil
}

// SetControlVector adds a vector to the residual stream behind each of the layers first to last, which count from 0.
// data holds the vectors of layers 1, 2 …, each as long as the stream is wide; it is copied. Without data, what was
// set is taken away.
func (x *Context) SetControlVector(data []float32, first, last int) error {
	if x.c == nil {
		return fmt.Errorf("set a control vector: the context is %w", ErrClosed)
	}
	width := x.model.Width()
	if len(data)%width != 0 {
		return fmt.Errorf("set a control vector: %w: %d values are no multiple of the model's width, %d", ErrAdapter,
			len(data), width)
	}
	why, stop := collectErrors()
	defer stop()
	rc := C.llama_set_adapter_cvec(x.c, (*C.float)(unsafe.SliceData(data)), C.size_t(len(data)), C.int32_t(width),
		C.int32_t(first), C.int32_t(last))
	if rc != 0 {
		return why(fmt.Errorf("set a control vector: %w", ErrAdapter))
	}
	return nil
}
