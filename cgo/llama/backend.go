//go:build llama

package llama

// #include "bridge.h"
import "C"

// Backends are the names of the backends that are loaded, such as CPU or CUDA. Init must have been called.
func Backends() []string {
	names := make([]string, C.ggml_backend_reg_count())
	for i := range names {
		names[i] = C.GoString(C.ggml_backend_reg_name(C.ggml_backend_reg_get(C.size_t(i))))
	}
	return names
}
