//go:build llama

package intervene

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// Channels of the planted model's residual stream.
const (
	channelA     = iota // the token is a
	channelB            // the token is b
	channelOther        // the token is any other
	channelQuery        // the token is the one that asks
	copiedA             // written by the head: it saw a
	copiedB
	answerA // written by the feed-forward network: the answer is that of a
	answerB
	channels = 32
)

// planted writes a model of three layers with one circuit, and zeros elsewhere: head 1 of layer 1 looks from the asking
// token at a or b and copies which it is; neurons 0 and 1 of layer 2 turn that into the answer, x or y.
func planted(t *testing.T, a, b, query, x, y int) string {
	t.Helper()
	const layers, heads, width, neurons = 3, 2, 16, 8
	donor, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	var meta gguf.Metadata
	meta.Set("general.architecture", "llama")
	meta.Set("general.name", "planted")
	for key, value := range map[string]any{"context_length": uint32(256), "embedding_length": uint32(channels),
		"block_count": uint32(layers), "feed_forward_length": uint32(neurons), "attention.head_count": uint32(heads),
		"attention.head_count_kv": uint32(heads), "attention.layer_norm_rms_epsilon": float32(1e-6),
		"rope.dimension_count": uint32(width), "rope.freq_base": float32(1e12)} {
		meta.Set("llama."+key, value)
	}
	for _, kv := range donor.Metadata.All() {
		if strings.HasPrefix(kv.Key, "tokenizer.") {
			meta.Set(kv.Key, kv.Value.Data)
		}
	}
	names, _ := donor.Metadata.Texts("tokenizer.ggml.tokens")
	vocab := int64(len(names))
	values := map[string][]float32{}
	var tensors []gguf.Tensor
	add := func(name string, in, out int64) []float32 {
		shape := []int64{in, out}
		if out == 0 {
			shape, out = shape[:1], 1
		}
		tensors = append(tensors, gguf.Tensor{Name: name + ".weight", Type: gguf.F32, Shape: shape})
		values[name+".weight"] = make([]float32, in*out)
		return values[name+".weight"]
	}
	norm := func(name string) {
		for i, w := 0, add(name, channels, 0); i < len(w); i++ {
			w[i] = 1
		}
	}
	embedding, output := add("token_embd", channels, vocab), add("output", channels, vocab)
	norm("output_norm")
	channel := map[int]int{a: channelA, b: channelB, query: channelQuery}
	for token := range int(vocab) {
		at, special := channel[token]
		if !special {
			at = channelOther
		}
		embedding[token*channels+at] = 1
	}
	output[x*channels+answerA], output[y*channels+answerB] = 1, 1
	for layer := range layers {
		at := func(part string) string { return fmt.Sprintf("blk.%d.%s", layer, part) }
		norm(at("attn_norm"))
		norm(at("ffn_norm"))
		q, k, v := add(at("attn_q"), channels, channels), add(at("attn_k"), channels, channels),
			add(at("attn_v"), channels, channels)
		o := add(at("attn_output"), channels, channels)
		gate, up, down := add(at("ffn_gate"), channels, neurons), add(at("ffn_up"), channels, neurons),
			add(at("ffn_down"), neurons, channels)
		const last = 2*width - 1 // of head 1, in the pair of dimensions that RoPE hardly turns
		switch layer {
		case 1:
			q[last*channels+channelQuery] = 3
			k[last*channels+channelA], k[last*channels+channelB] = 3, 3
			v[width*channels+channelA], v[(width+1)*channels+channelB] = 1, 1
			o[copiedA*channels+width], o[copiedB*channels+width+1] = 1, 1
		case 2:
			gate[0*channels+copiedA], gate[1*channels+copiedB] = 1, 1
			up[0*channels+copiedA], up[1*channels+copiedB] = 1, 1
			down[answerA*neurons+0], down[answerB*neurons+1] = 1, 1
		}
	}
	path := filepath.Join(t.TempDir(), "planted.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := gguf.NewWriter(f, &meta, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		if err := binary.Write(w, binary.LittleEndian, values[tensor.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// plantedSweep is a sweep of the planted model whose graph is known.
func plantedSweep(t *testing.T) (*Engine, Sweep) {
	t.Helper()
	e := open(t, Options{})
	id := func(text string) int {
		list, err := e.Vocab().Tokenize(text, false, false)
		if err != nil || len(list) != 1 {
			t.Fatalf("%q is %v: %v", text, list, err)
		}
		return int(list[0])
	}
	path := planted(t, id("a"), id("b"), id("{"), id("x"), id("y"))
	pair := Pair{"(a){", "(b){", "x", "y"}
	var points []ggmlhooks.PointRef
	for _, p := range []ggmlhooks.Point{ggmlhooks.PointEmbeddings, ggmlhooks.PointAttnOutPost,
		ggmlhooks.PointMLPOutPost} {
		points = append(points, ggmlhooks.PointRef{Point: p, Layer: ggmlhooks.NoLayer})
	}
	return open(t, Options{Model: path}), Sweep{Action: "patch", Metric: "logit-diff", Points: points,
		Pairs: []Pair{pair}, Graph: true, Top: 40, Least: 1e-6}
}

// TestPlanted: the causal graph of a model with one circuit is that circuit and nothing else.
func TestPlanted(t *testing.T) {
	e, sweep := plantedSweep(t)
	for _, heads := range []bool{false, true} {
		attention := "attn_out_post.1"
		if heads {
			attention = "z.1.h1"
			sweep.Points[1].Point, sweep.Heads = ggmlhooks.PointZ, true
		}
		r, err := sweep.Run(context.Background(), e)
		if err != nil {
			t.Fatal(err)
		}
		subject, last := len(r.Tokens)-3, len(r.Tokens)-1
		chain := []string{fmt.Sprintf("embeddings@%d", subject), fmt.Sprintf("%s@%d", attention, last),
			fmt.Sprintf("mlp_out_post.2@%d", last), outputID}
		var nodes, links, wantLinks []string
		for _, n := range r.Graph.Nodes {
			nodes = append(nodes, n.ID)
		}
		for _, l := range r.Graph.Links {
			links = append(links, l.Source+" → "+l.Target)
		}
		for i := range chain[1:] {
			wantLinks = append(wantLinks, chain[i]+" → "+chain[i+1])
		}
		if fmt.Sprint(nodes) != fmt.Sprint(chain) || fmt.Sprint(links) != fmt.Sprint(wantLinks) {
			t.Errorf("nodes %v\nlinks %v\nwant %v", nodes, links, chain)
		}
		whole := r.Source.Mean - r.Base.Mean
		for i, l := range r.Graph.Links {
			if math.Abs(l.Weight.Mean-whole) > 1e-5*whole || l.Share != nil && math.Abs(*l.Share-1) > 1e-5 {
				t.Errorf("%s has weight %v and share %v of %v", links[i], l.Weight.Mean, l.Share, whole)
			}
		}
		if r.Noise != 0 || whole < 1 {
			t.Errorf("own values change %v, the prompts differ by %v", r.Noise, whole)
		}
		for _, f := range r.Effects[3:] {
			if math.Abs(f.Effect.Mean) > 1e-6 {
				t.Errorf("%v has the effect %v", f.sites, f.Effect.Mean)
			}
		}
	}
}
