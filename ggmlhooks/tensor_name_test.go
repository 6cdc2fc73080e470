package ggmlhooks

import "testing"

func TestTensorNames(t *testing.T) {
	for name, want := range map[string]int{
		"blk.3.attn_q.weight": 3, "blk.12.ffn_up_exps.weight": 12, "v.blk.7.ln1.bias": 7,
		"blk.0.attn_q.weight.lora_a": 0, "output.weight": NoLayer, "blk.x.attn": NoLayer,
		"blk.4": NoLayer, "blk.-1.a": NoLayer, "": NoLayer,
	} {
		if got := WeightLayer(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
	for name, want := range map[string]struct {
		part  byte
		layer int
	}{"cache_k_l0": {'k', 0}, "cache_v_l12": {'v', 12}, "cache_r_l3": {'r', 3}, "cache_s_l3": {'s', 3},
		"cache_k_l3 (view)": {}, "cache_x_l1": {}, "cache_k_l-1": {}, "cache_kv_l1": {}, "k_l1": {}} {
		part, layer, ok := CacheTensor(name)
		if ok != (want.part != 0) || part != want.part || layer != want.layer {
			t.Errorf("%q: %c, %d, %v", name, part, layer, ok)
		}
	}
}
