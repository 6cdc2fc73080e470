//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/gguf"
)

// optionalBackend finds a backend that is not loaded unless asked for; "" where there is none.
func optionalBackend(name string) string {
	for _, dir := range []string{installed.Backends, filepath.Join(installed.Bin, "..", "..", "backends-"+name)} {
		file := filepath.Join(dir, "libggml-"+name+".so")
		if _, err := os.Stat(file); err == nil && dir != "" {
			return file
		}
	}
	return ""
}

// LoadBLAS lets contexts that are made from now on multiply matrices of at least 32 rows by a BLAS library, OpenBLAS
// with that many threads where it is the one that came with this build; 0 threads: as many as there are processors.
// Init must have been called. A second call changes nothing.
func LoadBLAS(threads int) error {
	file := optionalBackend("blas")
	if file == "" {
		return fmt.Errorf("this llama.cpp has no BLAS backend: %w: build llama.cpp with -DGGML_BLAS=ON and use make "+
			"LLAMA_PREFIX=…, or leave out --blas", errors.ErrUnsupported)
	}
	dir := C.CString(filepath.Dir(file))
	defer C.free(unsafe.Pointer(dir))
	why, stop := collectErrors()
	defer stop()
	if !bool(C.bridge_blas_load(dir, C.int(threads))) {
		return why(fmt.Errorf("%w: the BLAS backend %s cannot be loaded: run 'make build' again, or leave out --blas",
			ErrDevice, file))
	}
	return nil
}

// ProductTime measures the shortest time in which a device multiplies rows rows of n float32 by a square matrix of
// weights. It tries for about limit, and at least three times; threads are those of the CPU backend. Init must have
// been called. The error is ErrDevice.
func ProductTime(device string, weights gguf.Type, n, rows int64, threads int, limit time.Duration) (time.Duration,
	error) {
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	seconds := C.bridge_product_time(name, C.int(weights), C.int64_t(n), C.int64_t(rows), C.int(threads),
		C.double(limit.Seconds()))
	if seconds < 0 {
		return 0, fmt.Errorf("%w %s cannot multiply by %s", ErrDevice, device, weights)
	}
	return time.Duration(float64(seconds) * float64(time.Second)), nil
}
