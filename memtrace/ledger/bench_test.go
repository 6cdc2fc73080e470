package ledger

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// counted counts what is written.
type counted struct{ bytes int64 }

func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

func (*counted) Close() error { return nil }

func (c *counted) Create(string) (io.WriteCloser, error) { return c, nil }

func (*counted) Rename(string, string) error { return nil }

// deep draws a graph of so many layers of a dense model, as llama.cpp builds them: about 17 ops each.
func deep(id uint64, layers int) *ggmlhooks.Graph {
	f32, f16 := gguf.F32, gguf.F16
	const width, ff, cells = 256, 768, 512
	s := sketch{&ggmlhooks.Graph{ID: id, Tokens: 1}}
	at, act := uint64(0), uint64(4096)
	weight := func(name string, ne ...int64) int32 {
		w := tensor(gguf.Q8_0, inWeights, at, ne...)
		at += w.NB[3]
		return s.leaf(name, w)
	}
	result := func(ne ...int64) ggmlhooks.Leaf {
		act = act%(1<<20) + 4096
		return tensor(f32, inCompute, act, ne...)
	}
	idxs, mask, pos := s.leaf("k_idxs", tensor(gguf.I64, inCompute, 64, 1)),
		s.leaf("kq_mask", tensor(f16, inCompute, 128, cells, 1)), s.leaf("inp_pos", tensor(gguf.I32, inCompute, 32, 1))
	x := s.node("embd", "GET_ROWS", result(width, 1), weight("token_embd.weight", width, 1000),
		s.leaf("inp_tokens", tensor(gguf.I32, inCompute, 0, 1)))
	for l := range layers {
		name := func(of string) string { return fmt.Sprintf("blk.%d.%s.weight", l, of) }
		k, v := s.leaf(fmt.Sprintf("cache_k_l%d", l), tensor(f16, inCache, uint64(2*l)*width*2*cells, width, cells)),
			s.leaf(fmt.Sprintf("cache_v_l%d", l), tensor(f16, inCache, uint64(2*l+1)*width*2*cells, width, cells))
		n := s.node("attn_norm", "MUL", result(width, 1), s.node("norm", "RMS_NORM", result(width, 1), x),
			weight(name("attn_norm"), width))
		var qkv [3]int32
		for i, of := range []string{"attn_q", "attn_k", "attn_v"} {
			qkv[i] = s.node(of, "MUL_MAT", result(width, 1), weight(name(of), width, width), n)
			if i < 2 {
				qkv[i] = s.node(of+"_rope", "ROPE", result(width, 1), qkv[i], pos)
			}
		}
		s.node("k", "SET_ROWS", tensor(f16, inCache, uint64(2*l)*width*2*cells, width, cells), qkv[1], idxs, k)
		s.node("v", "SET_ROWS", tensor(f16, inCache, uint64(2*l+1)*width*2*cells, width, cells), qkv[2], idxs, v)
		a := s.node("fattn", "FLASH_ATTN_EXT", result(width, 1), qkv[0], k, v, mask)
		x = s.node("ffn_inp", "ADD", result(width, 1),
			s.node("attn_out", "MUL_MAT", result(width, 1), weight(name("attn_output"), width, width), a), x)
		n = s.node("ffn_norm", "MUL", result(width, 1), s.node("norm", "RMS_NORM", result(width, 1), x),
			weight(name("ffn_norm"), width))
		g := s.node("glu", "SWIGLU", result(ff, 1),
			s.node("gate", "MUL_MAT", result(ff, 1), weight(name("ffn_gate"), width, ff), n),
			s.node("up", "MUL_MAT", result(ff, 1), weight(name("ffn_up"), width, ff), n))
		x = s.node("l_out", "ADD", result(width, 1),
			s.node("down", "MUL_MAT", result(width, 1), weight(name("ffn_down"), ff, width), g), x)
	}
	s.node("result_output", "MUL_MAT", result(1000, 1), weight("output.weight", width, 1000), x)
	for i := range s.Nodes {
		s.Nodes[i].Layer = i / 17
	}
	return s.Graph
}

// BenchmarkDecode is the work of a token of a dense model with 24 layers, in rows and in windows, table included:
// each token sees one cell more, and the graph is described anew every 256 tokens. What it takes of the collector
// per row, and how large a row is, are printed beside.
func BenchmarkDecode(b *testing.B) {
	for _, window := range []time.Duration{0, time.Second} {
		name := ModeRows
		if window > 0 {
			name = ModeWindows
		}
		b.Run(name, func(b *testing.B) {
			var out counted
			m := NewRegionRecorder(RegionOptions{})
			trace := NewTable(TableOptions{Folder: &out})
			r := NewRecorder(Options{Map: m.Map(), Window: window, Table: trace})
			a := ggmlhooks.NewAssembler(0, m, r)
			for id, size := range map[uint64]uint64{inWeights: 64 << 20, inCache: 32 << 20, inCompute: 4 << 20} {
				buffer := ggmlhooks.Buffer{ID: id, Base: id << 40, Size: size, Host: true, Type: "CPU", Device: "CPU",
					Usage: ggmlhooks.BufferUsage(map[uint64]uint8{inWeights: 1, inCompute: 2}[id])}
				must(b, a.Buffer(&buffer))
			}
			exec := ggmlhooks.Exec{Tokens: []int32{7}, Pos: []int32{0}}
			cells := ggmlhooks.Input{Leaf: 0, Values: []int64{0}}
			mask := ggmlhooks.Input{Leaf: 1, Kind: ggmlhooks.InputMask, Ranges: []ggmlhooks.CellRange{{}}}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%256 == 0 {
					g := deep(uint64(i/256+1), 24)
					must(b, a.Graph(g))
					exec.Graph = g.ID
				}
				exec.Number, exec.TokenFirst, exec.Pos[0] = uint64(i+1), int64(i), int32(i)
				exec.MonoNS = int64(i) * 1e6
				cells.Exec, mask.Exec, cells.Values[0], mask.Ranges[0].End = exec.Number, exec.Number, int64(i%500),
					int32(i%500+1)
				must(b, a.Exec(&exec))
				must(b, a.Input(&cells))
				must(b, a.Input(&mask))
				must(b, a.ExecEnd(ggmlhooks.ExecEnd{Number: exec.Number, MonoNS: exec.MonoNS + 9e5,
					BeginNS: exec.MonoNS + 1000}))
			}
			must(b, a.Close())
			must(b, trace.Close())
			b.StopTimer()
			if accesses := r.Doubts().Accesses; accesses > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(accesses), "ns/access")
				b.ReportMetric(float64(accesses)/b.Elapsed().Seconds()/1e6, "Maccesses/s")
				b.ReportMetric(float64(out.bytes)/float64(r.Rows()), "bytes/row")
			}
		})
	}
}

func must(b testing.TB, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
