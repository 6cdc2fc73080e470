package oplog

import (
	"math"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// attentive is a graph with flash attention of 3 tokens, 2 heads of 8 values and 64 cells, whose mask is converted,
// and a sum.
func attentive() *ggmlhooks.Graph {
	node := func(name, op string, kind gguf.Type, src []int32, ne ...int64) ggmlhooks.Node {
		n := ggmlhooks.Node{Name: name, Op: op, Occurrence: 1, Computed: true, Type: int(kind),
			NE: [4]int64{1, 1, 1, 1}, Src: src, Slots: uint16(1<<len(src) - 1), Alias: -1}
		copy(n.NE[:], ne)
		return n
	}
	leaf := func(name string, kind gguf.Type, ne ...int64) ggmlhooks.Leaf {
		l := ggmlhooks.Leaf{Name: name, Type: int(kind), NE: [4]int64{1, 1, 1, 1}, Input: true}
		copy(l.NE[:], ne)
		return l
	}
	return &ggmlhooks.Graph{ID: 1, Tokens: 3,
		Leafs: []ggmlhooks.Leaf{leaf("q", gguf.F32, 8, 3, 2), leaf("cache_k_l0", gguf.F16, 8, 64, 2),
			leaf("cache_v_l0", gguf.F16, 8, 64, 2), leaf("mask", gguf.F32, 64, 3)},
		Nodes: []ggmlhooks.Node{
			node("mask16", "CPY", gguf.F16, []int32{-4, -4}, 64, 3),
			node("kqv-0", "FLASH_ATTN_EXT", gguf.F32, []int32{-1, -2, -3, 0}, 8, 2, 3),
			node("l_out-0", "ADD", gguf.F32, []int32{1, 1}, 8, 2, 3),
		},
	}
}

// TestUnmaskedAttention: attention counts every cell, and separately the cells alone that tokens may read; without
// a mask there is nothing to report. By hand: per pair and head 2·8 + 2·8 + 1 + 4 + 2 = 39, per token and head 9; the
// sum 48.
func TestUnmaskedAttention(t *testing.T) {
	for _, masked := range []bool{true, false} {
		b := newBench(t, Options{Level: resource.Minimal})
		b.check(b.Graph(attentive()))
		b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, MonoNS: b.clock, TokenFirst: 0, Tokens: []int32{1, 2, 3}}))
		if masked {
			b.check(b.Input(&ggmlhooks.Input{Exec: 1, Graph: 1, Leaf: 3, Kind: ggmlhooks.InputMask,
				Ranges: []ggmlhooks.CellRange{{Row: 0, First: 0, End: 1}, {Row: 1, First: 0, End: 2}}}))
			b.check(b.Input(&ggmlhooks.Input{Exec: 1, Graph: 1, Leaf: 3, Kind: ggmlhooks.InputMask,
				Ranges: []ggmlhooks.CellRange{{Row: 2, First: 0, End: 1}, {Row: 2, First: 5, End: 7}}}))
			b.check(b.Input(&ggmlhooks.Input{Exec: 1, Graph: 1, Leaf: 0, Kind: ggmlhooks.InputCells,
				Values: []int64{7}}))
		}
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 1, MonoNS: b.clock + 1000, BeginNS: b.clock + 10}))
		b.clock += 1000
		_, events := b.lines()
		g, w := of[resource.Graph](events)[0], whole(events)[0]
		full, own := int64(2*3*(64*39+9)+48), int64(2*(1+2+3)*39+2*3*9+48)
		if *g.FLOPs != full || *w.FLOPs != full || masked != (g.FLOPsUnmasked != nil) ||
			masked != (w.FLOPsUnmasked != nil) {
			t.Fatalf("%+v, %+v, want %d", g, w, full)
		}
		if masked && (*g.FLOPsUnmasked != own || *w.FLOPsUnmasked != own) {
			t.Errorf("%d and %d, want %d", *g.FLOPsUnmasked, *w.FLOPsUnmasked, own)
		}
		if masked && math.Abs(*w.GFLOPsPerS*float64(*w.DurationNS)/float64(own)-1) > 1e-5 || !masked &&
			w.GFLOPsPerS != nil {
			t.Errorf("masks were known: %v; a rate of %v in %d ns", masked, w.GFLOPsPerS, *w.DurationNS)
		}
		if unknown := map[bool]int{false: 1}[masked]; g.OpsWithoutMask != unknown || w.OpsWithoutMask != unknown {
			t.Errorf("masks were known: %v; %d and %d without", masked, g.OpsWithoutMask, w.OpsWithoutMask)
		}
	}
}
