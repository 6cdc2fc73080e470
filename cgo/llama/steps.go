//go:build llama

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// DecodeEach decodes the batch len(at)-1 times, with other tokens and positions that grow by one each time, and waits
// for each result. The batch says positions and sequences of the first time; tokens are those of all times, one after
// another. at[0] becomes CLOCK_MONOTONIC in nanoseconds before the first decode, at[i+1] after the i-th. It returns how
// many times were done; errors are those of Decode, and those done before stay.
//
// All is done in one call of C: between two calls the Go runtime's monitor would wake up some thousand times per second
// to look after the thread, at the cost of the threads that compute. Interrupt ends it as it ends Decode.
func (x *Context) DecodeEach(b *Batch, tokens []Token, at []int64) (done int, err error) {
	steps := len(at) - 1
	switch {
	case x.c == nil || b.capacity == 0:
		return 0, fmt.Errorf("decode: context or batch is %w", ErrClosed)
	case b.Len() == 0 || steps < 1 || len(tokens) != steps*b.Len():
		return 0, fmt.Errorf("decode %d tokens in %d steps of %d: %w", len(tokens), steps, b.Len(), ErrBatch)
	}
	var n C.int32_t
	rc := C.bridge_decode_each(x.c, b.c, (*C.llama_token)(unsafe.Pointer(&tokens[0])), C.int32_t(steps),
		(*C.int64_t)(unsafe.Pointer(&at[0])), &n)
	if rc == 0 {
		return int(n), nil
	}
	return int(n), fmt.Errorf("decode step %d of %d: %w", int(n)+1, steps, x.failed(int(rc)))
}
