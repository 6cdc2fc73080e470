package memtrace

import "testing"

func TestTypeOfFunction(t *testing.T) {
	for symbol, want := range map[string]RegionType{
		"ggml_vec_dot_q8_0_q8_0": Weight, "ggml_compute_forward_mul_mat": Weight,
		"llama_kv_cache_unified::cpy_k": KVCache, "ggml_compute_forward_rms_norm_f32": Activation,
		"malloc": Runtime, "mallopt": Other, "main": Other, "": Other,
	} {
		if got := TypeOfFunction(symbol); got != want {
			t.Errorf("%q: %v, want %v", symbol, got, want)
		}
	}
}

// TestModelFiles: a mapped model is weights in a program that reports no buffers, and what its buffers say where it
// does.
func TestModelFiles(t *testing.T) {
	mappings := func() []Mapping {
		return []Mapping{
			{Start: 0x1000, End: 0x3000, Perms: "r--p", Inode: 7, Path: "/models/a.gguf"},
			{Start: 0x4000, End: 0x5000, Perms: "r--s", Inode: 8, Path: "/m/b.safetensors (deleted)"},
			{Start: 0x6000, End: 0x7000, Perms: "r--p", Inode: 9, Path: "/etc/hosts"},
			{Start: 0x8000, End: 0x9000, Perms: "rw-p", Path: "[heap]"},
			{Start: 0xa000, End: 0xb000, Perms: "r-xp", Inode: 10, Path: "/lib/libc.so"},
		}
	}
	m := NewRegionMap()
	m.SetMappings(1, mappings())
	for addr, want := range map[uint64]RegionType{0x1000: Weight, 0x4fff: Weight, 0x6000: Other, 0x8000: Runtime,
		0xa000: Code} {
		if got := m.Address(addr, 2).Type(); got != want {
			t.Errorf("%x: %v, want %v", addr, got, want)
		}
	}
}
