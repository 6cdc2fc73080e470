//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// DecodeWatched is Decode of a batch that fits into one micro-batch, and Synchronize. At each site, in the order of
// their nodes and each node at most once, the graph is cut: when the node is computed, its tensor is read and then
// changed, before anything reads it. The error is ErrWatch where the graph is another one than sites were made for;
// what was computed is void then. The context was made with ContextParams.Watch.
func (x *Context) DecodeWatched(b *Batch, sites []WatchSite) error {
	if x.c == nil || x.watch == nil || b.capacity == 0 {
		return fmt.Errorf("decode: context or batch is %w, or the context is made without Watch", ErrClosed)
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	pin := func(p unsafe.Pointer) unsafe.Pointer {
		if p != nil {
			pins.Pin(p)
		}
		return p
	}
	all := make([]C.struct_bridge_site, len(sites), len(sites)+1)
	var writes []C.struct_bridge_write
	for i := range sites {
		s := &sites[i]
		all[i] = C.struct_bridge_site{node: C.int32_t(s.Node), offset: C.size_t(s.Offset), size: C.size_t(len(s.Read)),
			read: pin(unsafe.Pointer(unsafe.SliceData(s.Read))), first_write: C.int32_t(len(writes)),
			n_writes: C.int32_t(len(s.Writes))}
		for _, w := range s.Writes {
			size := w.Bytes
			if w.Kind != WatchKeep {
				size = 4 * len(w.Values)
			}
			writes = append(writes, C.struct_bridge_write{kind: C.int32_t(w.Kind), offset: C.size_t(w.Offset),
				size: C.size_t(size), data: pin(unsafe.Pointer(unsafe.SliceData(w.Values)))})
		}
	}
	rc := C.bridge_decode_watched(x.c, b.c, x.watch, unsafe.SliceData(all), C.int32_t(len(all)),
		unsafe.SliceData(writes))
	switch {
	case rc != 0:
		return fmt.Errorf("decode %d tokens: %w", b.Len(), x.failed(int(rc)))
	case bool(x.watch.failed):
		return fmt.Errorf("decode %d tokens: %w", b.Len(), ErrWatch)
	}
	return nil
}

func (x *Context) freeWatch() {
	if x.watch != nil {
		C.free(unsafe.Pointer(x.watch.nodes))
		C.free(unsafe.Pointer(x.watch))
	}
}

// Plan is DecodeWatched without sites for Graph alone: the CPU does not compute the graph. If a device has part in it,
// Graph describes the nodes before that; a recurrent model is computed, for an interrupted decode does not restore its
// state. What the batch adds to sequences is void then.
func (x *Context) Plan(b *Batch) error {
	if C.llama_model_is_recurrent(x.model.c) || C.llama_model_is_hybrid(x.model.c) {
		return x.DecodeWatched(b, nil)
	}
	x.Interrupt() // ggml asks for all nodes before it computes the first
	defer x.Resume()
	if err := x.DecodeWatched(b, nil); !errors.Is(err, ErrInterrupted) {
		return err
	}
	return nil
}

// Graph describes the graph of the last DecodeWatched or Plan, as far as named points are found by it.
func (x *Context) Graph() (*WatchGraph, error) {
	if x.watch == nil || x.watch.n_nodes > x.watch.cap {
		return nil, errors.New("describe the graph: there is none, or no memory for it")
	}
	tensors := unsafe.Slice(x.watch.nodes, x.watch.n_nodes)
	g := &WatchGraph{Root: make([]int, len(tensors)), Offset: make([]uint64, len(tensors))}
	g.Nodes = make([]ggmlhooks.Node, len(tensors))
	ids := make(map[*C.struct_ggml_tensor]int32, 2*len(tensors))
	names := make(map[string]int32, len(tensors)) // last node of each name
	for i, t := range tensors {
		n := &g.Nodes[i]
		ids[t] = int32(i)
		n.Name, n.Op, n.Type, n.Alias = C.GoString(&t.name[0]), C.GoString(C.ggml_op_desc(t)), int(t._type), -1
		n.NE, n.NB = tensorShape(t)
		n.View = t.op == C.GGML_OP_NONE || t.op == C.GGML_OP_VIEW || t.op == C.GGML_OP_RESHAPE ||
			t.op == C.GGML_OP_PERMUTE || t.op == C.GGML_OP_TRANSPOSE
		n.Computed = t.flags&C.GGML_TENSOR_FLAG_COMPUTE != 0 && !n.View
		for k := range n.OpParams {
			n.OpParams[k] = int32(t.op_params[k])
		}
		for k, s := range t.src {
			if s != nil {
				n.Slots |= 1 << k
				n.Src = append(n.Src, g.source(s, ids, names))
			}
		}
		g.Root[i] = i
		if t.view_src != nil {
			root, known := ids[t.view_src]
			if g.Root[i], g.Offset[i] = int(root), uint64(t.view_offs); !known || root < 0 {
				g.Root[i] = -1
			}
		}
		names[n.Name] = int32(i)
	}
	return g, nil
}

// source is the number of what a node reads, a leaf being -1-i. The scheduler's copies on a device, DEVICE#name#n,
// stand for what they copy.
func (g *WatchGraph) source(t *C.struct_ggml_tensor, ids map[*C.struct_ggml_tensor]int32,
	names map[string]int32) int32 {
	if id, known := ids[t]; known {
		return id
	}
	name, input := C.GoString(&t.name[0]), t.flags&C.GGML_TENSOR_FLAG_INPUT != 0
	if parts := strings.Split(name, "#"); len(parts) == 3 {
		name, input = parts[1], !strings.HasSuffix(parts[1], ".weight") // the copy of an input has not its flag
		if id, known := names[name]; known {
			ids[t] = id
			return id
		}
	}
	leaf := ggmlhooks.Leaf{Name: name, Type: int(t._type), Input: input}
	leaf.NE, leaf.NB = tensorShape(t)
	g.Leafs = append(g.Leafs, leaf)
	ids[t] = int32(-len(g.Leafs))
	return ids[t]
}

func tensorShape(t *C.struct_ggml_tensor) (ne [4]int64, nb [4]uint64) {
	for i := range ne {
		ne[i], nb[i] = int64(t.ne[i]), uint64(t.nb[i])
	}
	return ne, nb
}
