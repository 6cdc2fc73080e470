package ggmlhooks

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxLayers bounds layer numbers, so that a set of them has a fixed size in the memory shared with the tap.
const MaxLayers = 1024

// LayerSet is a set of layer numbers. The zero value is empty, which a Selection reads as "every layer".
type LayerSet struct {
	bits [MaxLayers / 64]uint64
}

// ParseLayerSet reads a list such as 0-3,7.
func ParseLayerSet(s string) (LayerSet, error) {
	var set LayerSet
	for _, part := range strings.Split(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := parseLayer(first)
		b := a
		if err == nil && isRange {
			b, err = parseLayer(last)
		}
		if err != nil || b < a {
			return LayerSet{}, fmt.Errorf("layer list %q: %q is neither a layer nor a range such as 0-3 "+
				"(layers go from 0 to %d)", s, part, MaxLayers-1)
		}
		for layer := a; layer <= b; layer++ {
			set.Add(layer)
		}
	}
	return set, nil
}

func parseLayer(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err == nil && (n < 0 || n >= MaxLayers) {
		err = strconv.ErrRange
	}
	return n, err
}

// Add puts a layer from 0 to MaxLayers-1 into the set.
func (s *LayerSet) Add(layer int) { s.bits[layer/64] |= 1 << (layer % 64) }

// Has reports whether the set holds the layer.
func (s *LayerSet) Has(layer int) bool {
	return layer >= 0 && layer < MaxLayers && s.bits[layer/64]>>(layer%64)&1 == 1
}

// Empty reports whether the set holds no layer.
func (s *LayerSet) Empty() bool { return s.bits == LayerSet{}.bits }

// Words returns the set as MaxLayers bits, layer 0 in the lowest bit of the first word.
func (s *LayerSet) Words() [MaxLayers / 64]uint64 { return s.bits }

// Max returns the highest layer of the set, or NoLayer if it is empty.
func (s *LayerSet) Max() int {
	for layer := MaxLayers - 1; layer >= 0; layer-- {
		if s.Has(layer) {
			return layer
		}
	}
	return NoLayer
}

// String writes the set as ParseLayerSet reads it.
func (s LayerSet) String() string {
	var parts []string
	for layer := 0; layer < MaxLayers; layer++ {
		if !s.Has(layer) {
			continue
		}
		first := layer
		for s.Has(layer + 1) {
			layer++
		}
		if layer == first {
			parts = append(parts, strconv.Itoa(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, layer))
		}
	}
	return strings.Join(parts, ",")
}

// MarshalText writes the set as String does.
func (s LayerSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the set as ParseLayerSet does; the empty text is the empty set.
func (s *LayerSet) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = LayerSet{}
		return nil
	}
	parsed, err := ParseLayerSet(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
