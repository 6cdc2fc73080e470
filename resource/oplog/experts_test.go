package oplog

import (
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
)

// mixture is a layer of four experts of which two are chosen for each of n tokens.
func mixture(n int64) (g *ggmlhooks.Graph, ids, weights int32) {
	d := draw(1, int(n))
	mlp := ggmlhooks.ComponentMLP
	x := d.node("GET_ROWS", "embd", -1, ggmlhooks.ComponentInput, []int64{64, n},
		d.leaf("token_embd.weight", gguf.Q8_0, 64, 100), d.leaf("inp_tokens", gguf.I32, n))
	probs := d.node("SOFT_MAX", "ffn_moe_probs-0", 0, mlp, []int64{4, n}, x)
	order := d.node("ARGSORT", "ffn_moe_argsort-0", 0, mlp, []int64{4, n}, probs)
	ids = d.node("VIEW", "ffn_moe_topk-0", 0, mlp, []int64{2, n}, order)
	weights = d.node("GET_ROWS", "ffn_moe_weights-0", 0, mlp, []int64{1, 2, n}, probs, ids)
	d.node("MUL_MAT_ID", "ffn_moe_up-0", 0, mlp, []int64{32, 2, n},
		d.leaf("blk.0.ffn_up_exps.weight", gguf.Q8_0, 64, 32, 4), x, ids)
	for _, i := range []int32{order, ids} {
		d.g.Nodes[i].Type = int(gguf.I32)
	}
	for _, i := range []int32{ids, weights} {
		d.g.Nodes[i].Routing = true
	}
	return d.g, ids, weights
}

func numbers(values ...any) (data []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case int:
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		case float64:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		}
	}
	return data
}

// TestExperts: one event per token and layer; with the choice the bytes of the experts are known, without it they
// are absent.
func TestExperts(t *testing.T) {
	g, ids, weights := mixture(3)
	d := drawing{g, map[string]int32{}}
	d.node("ADD_ID", "ffn_moe_up_biased-0", 0, ggmlhooks.ComponentMLP, []int64{32, 2, 3}, int32(len(g.Nodes)-1),
		d.leaf("blk.0.ffn_up_exps.bias", gguf.F32, 32, 4), ids)
	released := 0
	capture := func(node int32, ne [4]int64, data []byte) *ggmlhooks.Capture {
		return &ggmlhooks.Capture{Node: int(node), NE: ne, Data: data, For: ggmlhooks.ForRouting, Blocks: 1,
			Release: func() { released++ }}
	}
	b := newBench(t, Options{Level: resource.Verbose})
	b.check(b.Graph(g))
	n := computed(g)
	b.run(batch{graph: g, tokens: []int32{5, 6, 7}, nodes: n, times: same(len(n), 1000), captures: []*ggmlhooks.Capture{
		capture(ids, [4]int64{2, 3, 1, 1}, numbers(3, 1, 1, 0, 3, 0)),
		capture(weights, [4]int64{1, 2, 3, 1}, numbers(0.75, 0.25, 0.5, 0.5, 0.9, 0.1)),
	}})
	b.run(batch{graph: g, tokens: []int32{5, 6, 7}, nodes: n, times: same(len(n), 1000)})
	_, events := b.lines()
	r := of[resource.Routing](events)
	if len(r) != 3 || released != 2 {
		t.Fatalf("%d events, %d captures released", len(r), released)
	}
	for i, want := range [][]int32{{3, 1}, {1, 0}, {3, 0}} {
		if !slices.Equal(r[i].Experts, want) || r[i].TokenID != int32(5+i) || r[i].Pos != int32(i) ||
			r[i].LayerID != 0 || *r[i].SeqID != 0 {
			t.Errorf("token %d: %+v", i, r[i])
		}
	}
	if !slices.Equal(r[2].Weights, []float32{0.9, 0.1}) {
		t.Errorf("weights %v", r[2].Weights)
	}
	var products []*resource.Compute
	for _, c := range whole(events) {
		want := int64(3*64*4 + 3*32*4 + 3*2*4)
		if c.Operation == "add_id" && c.BytesRead != nil && *c.BytesRead != want {
			t.Errorf("the biases of three of four experts were read: %d bytes, want %d", *c.BytesRead, want)
		}
		if c.Operation == "mul_mat_id" {
			products = append(products, c)
		}
	}
	if want := int64(3*32*68 + 3*64*4 + 3*2*4); *products[0].BytesRead != want || products[0].OpsWithoutBytes != 0 ||
		products[0].GBPerS == nil {
		t.Errorf("three of four experts were read: %d bytes, want %d", *products[0].BytesRead, want)
	}
	if c := products[1]; c.BytesRead != nil || c.OpsWithoutBytes != 1 || c.GBPerS != nil || *c.FLOPs != 2*64*32*2*3 {
		t.Errorf("nobody knows which experts were read: %+v", c)
	}
	if graphs := of[resource.Graph](events); graphs[0].BytesRead == nil || graphs[1].BytesRead != nil ||
		graphs[1].OpsWithoutBytes != 2 {
		t.Errorf("graphs %+v", graphs)
	}
}

// TestExpertsForOthers: a choice that another recorder asked for makes bytes known at any level, and no event.
func TestExpertsForOthers(t *testing.T) {
	g, ids, _ := mixture(3)
	b := newBench(t, Options{Level: resource.Minimal})
	b.check(b.Graph(g))
	b.run(batch{graph: g, tokens: []int32{5, 6, 7}, captures: []*ggmlhooks.Capture{{Node: int(ids),
		NE: [4]int64{2, 3, 1, 1}, Data: numbers(3, 1, 1, 0, 3, 0), For: ggmlhooks.ForRouting, Blocks: 1,
		Release: func() {}}}})
	_, events := b.lines()
	if n := len(of[resource.Routing](events)); n != 0 {
		t.Errorf("%d events of a level that has none", n)
	}
	if graph := of[resource.Graph](events)[0]; graph.BytesRead == nil || graph.OpsWithoutBytes != 0 {
		t.Errorf("%+v", graph)
	}
}

// TestKV: what happens to cells is recorded per layer, with exact bytes; what is not known is absent.
func TestKV(t *testing.T) {
	b := newBench(t, Options{Level: resource.Detailed})
	b.check(b.Buffer(&ggmlhooks.Buffer{ID: 4, Size: 1 << 20, Device: "CPU", Host: true, MonoNS: b.clock}))
	g := small(1, 1)
	g.Leafs = append(g.Leafs, ggmlhooks.Leaf{Name: "cache_k_l5", NE: [4]int64{1, 1, 1, 1},
		Place: ggmlhooks.Place{Buffer: 4}})
	b.check(b.Graph(g))
	wrote := kvcache.Operation{
		Change: kvcache.Change{Action: kvcache.Allocate, Seq: 1, PosFirst: 4, PosEnd: 7, Cells: 3}, Cache: kvcache.SWA,
		MonoNS: b.clock, Exec: 9,
		Layers: []kvcache.LayerBytes{{Layer: 0, K: 3 << 20, V: 1 << 20}, {Layer: 5, K: 96, V: 48}}, Reused: 3,
		Needed: 12,
	}
	b.check(b.r.KV(&wrote))
	b.check(b.r.KV(&kvcache.Operation{Change: kvcache.Change{Action: kvcache.Evict, Reason: kvcache.Clear, Seq: -1,
		PosFirst: kvcache.PosUnknown, PosEnd: kvcache.PosUnknown, Cells: 2}, Cache: kvcache.Recurrent}))
	b.r.SetLevel(resource.Minimal, b.clock)
	b.check(b.r.KV(&wrote))
	_, events := b.lines()
	got := of[resource.KV](events)
	if len(got) != 3 {
		t.Fatalf("%d events", len(got))
	}
	if k := got[0]; *k.Exec != 9 || k.LayerID != 0 || *k.SeqID != 1 || *k.CacheStartPos != 4 || *k.CacheEndPos != 7 ||
		*k.KeyCacheSizeMB != 3 || *k.ValueBytes != 1<<20 ||
		*k.CacheHitRatio != 0.25 || k.CacheOperation != "allocate" || k.Reason != "" || k.Cache != "swa" ||
		k.CacheType != "key_value" {
		t.Errorf("%+v", k)
	}
	if k := got[1]; k.LayerID != 5 || *k.KeyBytes != 96 || *k.ValueBytes != 48 {
		t.Errorf("%+v", k)
	}
	if id := got[1].ResourceID; !strings.HasPrefix(id, "cpu_cache_layer_5_swa_") ||
		!strings.HasPrefix(got[0].ResourceID, "unknown_cache_layer_0_") {
		t.Errorf("a cache of the CPU has the id %s, one of an unknown device %s", id, got[0].ResourceID)
	}
	if k := got[2]; k.SeqID != nil || k.CacheStartPos != nil || k.Exec != nil || k.KeyBytes != nil ||
		k.CacheHitRatio != nil || k.LayerID != -1 || k.CacheType != "recurrent" || k.Reason != "clear" ||
		k.Source != resource.Measured {
		t.Errorf("%+v", k)
	}
}

// TestResourceIDs: events of the same resource within a microsecond have ids of their own, in LRI's form.
func TestResourceIDs(t *testing.T) {
	b := newBench(t, Options{Level: resource.Detailed})
	change := kvcache.Change{Action: kvcache.Allocate, Seq: 1, PosFirst: 4, PosEnd: 7, Cells: 3}
	seen := map[string]bool{}
	for _, at := range []int64{0, 10, 999, 500, 1000, 2000, 900} {
		b.check(b.r.KV(&kvcache.Operation{Change: change, MonoNS: b.clock + at, Exec: 9,
			Layers: []kvcache.LayerBytes{{Layer: 0}}}))
	}
	_, events := b.lines()
	for _, k := range of[resource.KV](events) {
		if seen[k.ResourceID] || !regexp.MustCompile(`^unknown_cache_layer_0_base_\d{16}$`).MatchString(k.ResourceID) {
			t.Errorf("%s of %v", k.ResourceID, seen)
		}
		seen[k.ResourceID] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d ids", len(seen))
	}
}
