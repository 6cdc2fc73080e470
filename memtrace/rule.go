package memtrace

import "strings"

// rule says what functions access whose names have one of some parts.
type rule struct {
	parts []string
	kind  RegionType
}

// rules are asked in order. What mrm-trace's labeller infers from names of functions they infer, too: of
// llama.cpp's and of the C library's.
var rules = []rule{
	{[]string{"kv_cache", "llama_kv", "cpy_k", "cpy_v"}, KVCache},
	{[]string{"vec_dot", "mul_mat", "gemv", "gemm", "get_rows", "load_all_data", "load_tensors", "load_model"}, Weight},
	{[]string{"rms_norm", "silu", "rope", "soft_max", "compute_forward_add", "compute_forward_mul"}, Activation},
}

// allocators are functions whose accesses are of the heap's own data.
var allocators = map[string]bool{"malloc": true, "calloc": true, "realloc": true, "free": true, "_int_malloc": true,
	"_int_free": true}

// TypeOfFunction is the type of region that a function mostly accesses, by its name; Other where nothing follows
// from it.
func TypeOfFunction(symbol string) RegionType {
	name := strings.ToLower(symbol)
	if allocators[name] {
		return Runtime
	}
	for _, r := range rules {
		for _, part := range r.parts {
			if strings.Contains(name, part) {
				return r.kind
			}
		}
	}
	return Other
}
