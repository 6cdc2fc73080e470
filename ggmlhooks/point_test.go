package ggmlhooks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sketch is a graph in the making. Its tensors are known by names of the test's; the graph's own names are lies, as
// they may be in llama.cpp.
type sketch struct {
	Graph
	numbers map[string]int32
}

// add adds a node: its name here, its op, and what it reads. What no node is called is a leaf.
func (s *sketch) add(name, op string, sources ...string) {
	n := Node{Name: "ffn_out-0", Op: op, Computed: true, NE: [4]int64{8, 3, 1, 1}, Alias: -1, Number: 1}
	n.View = op == "RESHAPE" || op == "VIEW" || op == "PERMUTE"
	n.Computed = !n.View
	if at, known := s.numbers[sources[0]]; op == "VIEW" {
		n.NE[0] = 4
	} else if known && at >= 0 && op == "RESHAPE" {
		n.NE = s.Nodes[at].NE
	}
	for k, source := range sources {
		at, known := s.numbers[source]
		if !known {
			at = int32(-1 - len(s.Leafs))
			s.Leafs = append(s.Leafs, Leaf{Name: source, NE: [4]int64{8, 1, 1, 1},
				Input: strings.HasPrefix(source, "inp_")})
			s.numbers[source] = at
		}
		n.Src = append(n.Src, at)
		n.Slots |= 1 << k
	}
	if op == "SET_ROWS" {
		n.Name = sources[2] + " (view)"
	}
	s.numbers[name] = int32(len(s.Nodes))
	s.Nodes = append(s.Nodes, n)
}

// a variant is how a model differs from llama.
type variant struct{ postNorm, parallel, fused, experts, flash, qkNorm, gate bool }

// sketched draws a model of two layers.
func sketched(v variant) *sketch {
	s := &sketch{numbers: map[string]int32{}}
	s.add("rows", "GET_ROWS", "token_embd.weight", "inp_tokens")
	s.add("emb", "SCALE", "rows")
	in := "emb"
	for i := range 2 {
		at := func(name string) string { return fmt.Sprintf("%s%d", name, i) }
		w := func(name string) string { return fmt.Sprintf("blk.%d.%s.weight", i, name) }
		norm := func(to, from, weight string) string {
			s.add(at(to+"_n"), "RMS_NORM", from)
			s.add(at(to), "MUL", at(to+"_n"), w(weight))
			return at(to)
		}
		attnIn := norm("attn_in", in, "attn_norm")
		q, k, value := at("q"), at("k"), at("v")
		s.add(q, "MUL_MAT", w("attn_q"), attnIn)
		if v.fused {
			s.add(at("qkv"), "MUL_MAT", w("attn_qkv"), attnIn)
			s.add(value, "VIEW", at("qkv"))
		} else {
			s.add(at("v0"), "MUL_MAT", w("attn_v"), attnIn)
			s.add(value, "ADD", at("v0"), fmt.Sprintf("blk.%d.attn_v.bias", i))
		}
		s.add(k, "MUL_MAT", w("attn_k"), attnIn)
		if v.qkNorm {
			s.add(at("qr"), "RESHAPE", q)
			q, k = norm("q_norm", at("qr"), "attn_q_norm"), norm("k_norm", k, "attn_k_norm")
		}
		s.add(at("vr"), "RESHAPE", value)
		s.add(at("set"), "SET_ROWS", at("vr"), "inp_rows", fmt.Sprintf("cache_v_l%d", i))
		z := at("z")
		if v.flash {
			s.add(z, "FLASH_ATTN_EXT", q, k, value, "inp_mask")
		} else {
			s.add(at("kq"), "MUL_MAT", k, q)
			s.add(at("probs"), "SOFT_MAX", at("kq"), "inp_mask")
			s.Nodes[len(s.Nodes)-1].OpParams[0] = 0x3e800000 // 0.25
			s.add(at("kqv"), "MUL_MAT", value, at("probs"))
			s.add(at("kqvp"), "PERMUTE", at("kqv"))
			s.add(z, "CONT", at("kqvp"))
		}
		if v.gate {
			s.add(at("gate"), "MUL_MAT", w("attn_gate"), attnIn)
			s.add(at("sigmoid"), "SIGMOID", at("gate"))
			s.add(at("gated"), "MUL", z, at("sigmoid"))
			z = at("gated")
		}
		s.add(at("zr"), "RESHAPE", z)
		out := at("attn_out")
		s.add(out, "MUL_MAT", w("attn_output"), at("zr"))
		stream := in
		if i == 1 {
			s.add("out_rows", "GET_ROWS", out, "inp_out_ids")
			s.add("in_rows", "GET_ROWS", in, "inp_out_ids")
			out, stream = "out_rows", "in_rows"
		}
		if v.postNorm {
			out = norm("attn_post", out, "post_attention_norm")
		}
		mlpIn := attnIn
		if !v.parallel {
			s.add(at("mid"), "ADD", out, stream)
			stream = at("mid")
			mlpIn = norm("mlp_in", stream, "ffn_norm")
		} else if i == 1 {
			s.add("mlp_rows", "GET_ROWS", attnIn, "inp_out_ids")
			mlpIn = "mlp_rows"
		}
		mlp := at("mlp_out")
		if v.experts {
			s.add(at("router"), "MUL_MAT", w("ffn_gate_inp"), mlpIn)
			s.add(at("weights"), "SOFT_MAX", at("router"))
			s.add(at("sorted"), "ARGSORT", at("weights"))
			s.add(at("chosen"), "VIEW", at("sorted"))
			s.add(at("experts"), "MUL_MAT_ID", w("ffn_down_exps"), mlpIn, at("chosen"))
			s.add(at("weighed"), "MUL", at("experts"), at("weights"))
			s.add(at("first"), "VIEW", at("weighed"))
			s.add(at("second"), "VIEW", at("weighed"))
			s.add(mlp, "ADD", at("first"), at("second"))
		} else {
			s.add(at("up"), "MUL_MAT", w("ffn_up"), mlpIn)
			if v.fused {
				s.add(at("act"), "SWIGLU", at("up"))
			} else {
				s.add(at("pre"), "MUL_MAT", w("ffn_gate"), mlpIn)
				s.add(at("act"), "SWIGLU", at("pre"), at("up"))
			}
			s.add(mlp, "MUL_MAT", w("ffn_down"), at("act"))
		}
		if v.postNorm {
			mlp = norm("mlp_post", mlp, "post_ffw_norm")
		}
		if v.parallel {
			s.add(at("both"), "ADD", mlp, out)
			mlp = at("both")
		}
		s.add(at("sum"), "ADD", mlp, stream)
		in = at("post")
		s.add(in, "ADD", at("sum"), "control vector") // llama_set_adapter_cvec
	}
	s.add("last", "RMS_NORM", in)
	s.add("final", "MUL", "last", "output_norm.weight")
	s.add("logits", "MUL_MAT", "output.weight", "final")
	return s
}

// TestPoints looks points up in models whose nodes' names say nothing.
func TestPoints(t *testing.T) {
	for _, c := range []struct {
		name string
		v    variant
		want string // of layer 1, and of the whole model
	}{
		{"llama", variant{}, "resid_pre=post0 attn_in=attn_in1 value=v1 attn_scores~kq1 attn_probs=probs1 z=z1 " +
			"attn_out=attn_out1 attn_out_post=attn_out1 resid_mid=mid1 mlp_in=mlp_in1 mlp_pre=pre1 " +
			"mlp_pre_linear=up1 mlp_act=act1 mlp_out=mlp_out1 mlp_out_post=mlp_out1 resid_post=post1 " +
			"embeddings=emb final_norm=final lm_head=logits"},
		{"flash, norms of queries and behind both parts", variant{flash: true, qkNorm: true, postNorm: true},
			"resid_pre=post0 attn_in=attn_in1 q_norm_in=q1 q_norm_out=q_norm1 k_norm_in=k1 k_norm_out=k_norm1 " +
				"value=v1 z=z1 attn_out=attn_out1 attn_out_post=attn_post1 resid_mid=mid1 mlp_in=mlp_in1 " +
				"mlp_pre=pre1 mlp_pre_linear=up1 mlp_act=act1 mlp_out=mlp_out1 mlp_out_post=mlp_post1 " +
				"resid_post=post1 embeddings=emb final_norm=final lm_head=logits"},
		{"parallel, fused projections", variant{parallel: true, fused: true}, "resid_pre=post0 attn_in=attn_in1 " +
			"value=v1 attn_scores~kq1 attn_probs=probs1 z=z1 attn_out=attn_out1 attn_out_post=attn_out1 " +
			"mlp_in=mlp_rows mlp_pre~up1 mlp_pre_linear~up1 mlp_act=act1 mlp_out=mlp_out1 mlp_out_post=mlp_out1 " +
			"resid_post=post1 embeddings=emb final_norm=final lm_head=logits"},
		{"experts, gated heads", variant{experts: true, gate: true, flash: true}, "resid_pre=post0 attn_in=attn_in1 " +
			"value=v1 z=gated1 attn_gate=gate1 attn_out=attn_out1 attn_out_post=attn_out1 resid_mid=mid1 " +
			"mlp_in=mlp_in1 router_logits=router1 expert_weights=weights1 expert_indices=chosen1 mlp_out=mlp_out1 " +
			"mlp_out_post=mlp_out1 resid_post=post1 embeddings=emb final_norm=final lm_head=logits"},
	} {
		s := sketched(c.v)
		names := map[int]string{}
		for name, at := range s.numbers {
			names[int(at)] = name
		}
		var got []string
		sites := s.Points()
		for _, site := range sites {
			if site.Layer != 0 && site.How != PointImpossible {
				mark := map[PointHow]string{PointServed: "=", PointRecomputed: "~"}[site.How]
				got = append(got, site.Point.String()+mark+names[site.Node])
			}
			if (site.Why == "") != (site.How == PointServed) || (site.Node < 0) != (site.How == PointImpossible) {
				t.Errorf("%s: %+v", c.name, site)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, text, c.want)
		}
		if want := 2*(int(NumPoints)-3) + 3; len(sites) != want {
			t.Errorf("%s: %d points, want %d", c.name, len(sites), want)
		}
	}
}

// TestPointsOfACast: ggml_cast makes a copy whose target is itself.
func TestPointsOfACast(t *testing.T) {
	plain, cast := sketched(variant{}), sketched(variant{})
	at := int32(len(cast.Nodes))
	cast.Nodes = append(cast.Nodes, Node{Op: "CPY", Computed: true, NE: [4]int64{8, 3, 1, 1}, Src: []int32{at - 1, at},
		Slots: 3, Alias: -1, Number: 1})
	if got, want := cast.Points(), plain.Points(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestPointsOfAnything has points looked up in graphs with one edge changed: it may find what it likes, and returns.
func TestPointsOfAnything(t *testing.T) {
	if sites := new(Graph).Points(); len(sites) != 3 {
		t.Errorf("an empty graph has %d points, want 3", len(sites))
	}
	for _, v := range []variant{{}, {parallel: true, fused: true}, {experts: true, postNorm: true, qkNorm: true}} {
		n := len(sketched(v).Nodes)
		for i := range n {
			for _, to := range []int32{-1, 0, int32(max(i-1, 0)), int32(i), int32(n - 1)} {
				s := sketched(v)
				s.Nodes[i].Src = append([]int32{}, s.Nodes[i].Src...)
				s.Nodes[i].Src[0] = to
				s.Points()
			}
			s := sketched(v)
			s.Nodes[i].Src, s.Nodes[i].Slots = nil, 0
			s.Points()
		}
	}
}

func TestParsePoint(t *testing.T) {
	for name, want := range map[string]PointRef{
		"resid_post": {PointResidPost, NoLayer}, "resid_post.3": {PointResidPost, 3},
		"blocks.3.hook_resid_post": {PointResidPost, 3}, "hook_resid_post": {PointResidPost, NoLayer},
		"blocks.0.attn.hook_z": {PointZ, 0}, "blocks.11.mlp.hook_post": {PointMLPAct, 11},
		"blocks.1.hook_mlp_out": {PointMLPOutPost, 1}, "blocks.1.mlp.hook_out": {PointMLPOut, 1},
		"unembed.hook_in": {PointFinalNorm, NoLayer}, "lm_head": {PointLMHead, NoLayer},
	} {
		if got, ok := ParsePoint(name); !ok || got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "resid", "resid_post.-1", "resid_post.", "blocks.3.resid_post", "blocks.x.hook_z",
		"lm_head.2", "blocks.3.hook_mlp_in", "resid_post.1024"} {
		if got, ok := ParsePoint(name); ok {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, name := range PointNames() {
		if ref, ok := ParsePoint(name); !ok || ref.Point.String() != name || ref.Point.Meaning() == "" {
			t.Errorf("%s: %v, %v", name, ref, ok)
		}
	}
}
