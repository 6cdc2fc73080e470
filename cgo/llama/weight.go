//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/llamatap/llamatap/gguf"
)

// SetWeight writes all bytes of a weight, in its own type. The last DecodeWatched of the context read it; its model was
// loaded with ModelParams.Plain and LoadRead.
func (x *Context) SetWeight(name string, data []byte) error {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	if x.watch == nil || !bool(C.bridge_set_weight(x.watch, cname, unsafe.Pointer(unsafe.SliceData(data)),
		C.size_t(len(data)))) {
		return fmt.Errorf("write weight %s: the last graph read no weight of this name and of %d bytes", name,
			len(data))
	}
	return nil
}

// Requantise converts weights from one type to another, by way of F32, a row at a time.
func Requantise(data []byte, from, to gguf.Type, rows, perRow int64) ([]byte, error) {
	out := make([]byte, rows*int64(C.ggml_row_size(uint32(to), C.int64_t(perRow))))
	if int64(len(data)) != rows*int64(C.ggml_row_size(uint32(from), C.int64_t(perRow))) {
		return nil, fmt.Errorf("convert weights: %d bytes are not %d rows of %d values of %s", len(data), rows, perRow,
			from)
	}
	if !bool(C.bridge_requantise(unsafe.Pointer(unsafe.SliceData(data)), uint32(from),
		unsafe.Pointer(unsafe.SliceData(out)), uint32(to), C.int64_t(rows), C.int64_t(perRow))) {
		return nil, fmt.Errorf("convert weights from %s to %s: ggml cannot", from, to)
	}
	return out, nil
}
