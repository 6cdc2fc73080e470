package ggmlhooks

import (
	"strconv"
	"strings"
)

// WeightLayer is the layer of a weight by its GGUF name, such as blk.3.attn_q.weight or v.blk.3.ffn_up.weight;
// NoLayer where it names none.
func WeightLayer(name string) int {
	rest, found := strings.CutPrefix(name, "blk.")
	if !found {
		_, rest, found = strings.Cut(name, ".blk.")
	}
	number, _, cut := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	if !found || !cut || err != nil || layer < 0 {
		return NoLayer
	}
	return layer
}

// CacheTensor takes the name of a tensor of llama.cpp's memory apart, such as cache_k_l12: k or v of attention, r
// or s of recurrent layers, and its layer.
func CacheTensor(name string) (part byte, layer int, ok bool) {
	rest, found := strings.CutPrefix(name, "cache_")
	letter, number, cut := strings.Cut(rest, "_l")
	n, err := strconv.ParseInt(number, 10, 32)
	if !found || !cut || err != nil || n < 0 || len(letter) != 1 || !strings.Contains("kvrs", letter) {
		return 0, 0, false
	}
	return letter[0], int(n), true
}
