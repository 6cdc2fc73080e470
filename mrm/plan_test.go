package mrm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// header writes a GGUF file that has a header and as many bytes of tensors as that says, all of them a hole: it
// takes no room.
func header(t *testing.T, name, arch string, keys map[string]any, tensors []gguf.Tensor) string {
	t.Helper()
	var meta gguf.Metadata
	meta.Set("general.architecture", arch)
	meta.Set("general.name", name)
	for key, value := range keys {
		meta.Set(arch+"."+key, value)
	}
	path := filepath.Join(t.TempDir(), name+".gguf")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := gguf.NewWriter(file, &meta, tensors)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, tensor := range w.File().Tensors {
		size = max(size, tensor.End())
	}
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return path
}

// mistral is the header of a 7B model in Q8_0: the shapes of Mistral 7B v0.1.
func mistral(t *testing.T) string {
	const layers, width, kv, ff, vocab = 32, 4096, 1024, 14336, 32000
	tensor := func(name string, typ gguf.Type, shape ...int64) gguf.Tensor {
		return gguf.Tensor{Name: name, Type: typ, Shape: shape}
	}
	all := []gguf.Tensor{tensor("token_embd.weight", gguf.Q8_0, width, vocab),
		tensor("output.weight", gguf.Q8_0, width, vocab), tensor("output_norm.weight", gguf.F32, width)}
	for i := range layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		all = append(all, tensor(name("attn_q"), gguf.Q8_0, width, width),
			tensor(name("attn_k"), gguf.Q8_0, width, kv), tensor(name("attn_v"), gguf.Q8_0, width, kv),
			tensor(name("attn_output"), gguf.Q8_0, width, width), tensor(name("ffn_gate"), gguf.Q8_0, width, ff),
			tensor(name("ffn_up"), gguf.Q8_0, width, ff),
			tensor(name("ffn_down"), gguf.Q8_0, ff, width), tensor(name("attn_norm"), gguf.F32, width),
			tensor(name("ffn_norm"), gguf.F32, width))
	}
	return header(t, "mistral-7b-v0.1", "llama", map[string]any{
		"block_count": uint32(layers), "embedding_length": uint32(width), "context_length": uint32(32768),
		"feed_forward_length":  uint32(ff),
		"attention.head_count": uint32(32), "attention.head_count_kv": uint32(8), "vocab_size": uint32(vocab),
	}, all)
}

// TestNeeds computes the needs of a 7B model whose figures are known: 7.24 billion weights, and 128 KiB of cache
// per token in F16.
func TestNeeds(t *testing.T) {
	path := mistral(t)
	p := planned(t, "model: {path: "+path+"}\nengine: {n_ctx: [4096, 4000], kv_type: [f16, q8_0, "+
		"f16/q8_0]}\nworkload: {prompts: {length: 100}, max_tokens: 10}\ntelemetry: {baseline_s: 2}\n")
	const parameters = 7241732096
	if n := p.Sources[0].Identity.Parameters; n != parameters {
		t.Fatalf("%d parameters, Mistral 7B has %d", n, int64(parameters))
	}
	for i, want := range []float64{4096 * 131072, 4096 * 131072 / 2 * 34 / 32, 4096 * (65536 + 65536/2*34/32),
		4096 * 131072} { // 4000 is rounded up to 4096
		if got := p.Needs[i].Cache; got.Value != want || got.Tag != Computed {
			t.Errorf("cell %s: cache of %v, want %g", p.Cells[i].Name(), got, want)
		}
	}
	n := p.Needs[0]
	if n.Weights.Value != float64(p.Sources[0].File.TensorBytes()) || n.Weights.Tag != Computed ||
		n.Weights.Value < 7.6e9 || n.Weights.Value > 7.8e9 {
		t.Errorf("weights %+v", n.Weights)
	}
	// llama.cpp says 70.50 MiB for a 7B model with a vocabulary of 32000 and graphs of 512 tokens, of which 62.5
	// are logits.
	if n.Compute.Value < 62.5*(1<<20) || n.Compute.Value > 141*(1<<20) || n.Compute.Tag != Estimated {
		t.Errorf("compute buffer %+v", n.Compute)
	}
	// 10 GB/s are 1.36 tokens a second: 110 tokens, twice.
	if n.Time.Value < 150 || n.Time.Value > 190 || n.Time.Tag != Estimated ||
		!strings.Contains(n.Time.From, "10 GB/s") {
		t.Errorf("time %+v", n.Time)
	}
}

// TestCheck refuses what cannot fit, and says what to do.
func TestCheck(t *testing.T) {
	p := planned(t, "model: {path: "+mistral(t)+"}\nworkload: {prompts: Hi}\n")
	for _, c := range []struct {
		name         string
		memory, disk int64
		want         string
	}{
		{"room", 64e9, 64e9, ""},
		{"not known", 0, 0, ""},
		{"memory", 8e9, 64e9, "choose a shorter n_ctx"},
		{"disk", 64e9, 1e4, "give another output.dir"},
	} {
		p.Machine.FreeMemory, p.Machine.FreeDisk = c.memory, c.disk
		err := p.Check()
		if (c.want == "") != (err == nil) || err != nil &&
			(!errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestWritePlan: every figure that is shown says where it is from.
func TestWritePlan(t *testing.T) {
	p := planned(t, "experiment: {repetitions: 2}\nengine: {n_ctx: [128, 256]}\nworkload: {prompts: [a, b], "+
		"max_tokens: 8}\n")
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 model × 2 contexts × 1 cache type × 2 prompts × 2 repetitions = 8 cells, 0 of them done",
		"(estimated: weights and half of the cache per token at 10 GB/s)",
		"gopher-6m-Q8_0  p1      128    256      f16", "gopher-6m-Q8_0  p1      256    256      f16",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if s := p.Summary(); len(s.Cells) != 8 || s.Time.Value <= 0 || s.Cells[0].Need.Cache.Value <= 0 ||
		s.Cells[0].NCtx != 128 || s.Cells[0].Context != 256 {
		t.Errorf("%+v", s)
	}
}

// TestContextOfRequests: each request at a time has a whole number of paddings of cells, as llama.cpp allocates them.
func TestContextOfRequests(t *testing.T) {
	p := planned(t, "engine: {n_ctx: [256, 300, 1100]}\nworkload: {prompts: a, max_tokens: 8, "+
		"concurrency: [1, 2, 3]}\nexperiment: {repetitions: 1}\n")
	want := map[[2]int]int64{{256, 1}: 256, {256, 2}: 512, {256, 3}: 768, {300, 1}: 512, {300, 2}: 512, {300, 3}: 768,
		{1100, 1}: 1280, {1100, 2}: 1536, {1100, 3}: 1536}
	s := p.Summary()
	perCell := s.Cells[0].Need.Cache.Value / 256
	for _, cell := range s.Cells {
		cells := want[[2]int{cell.NCtx, cell.Concurrency}]
		if cell.Context != cells || cell.Need.Cache.Value != perCell*float64(cells) {
			t.Errorf("n_ctx %d of %d requests: %d cells, %v bytes; want %d cells of %v bytes", cell.NCtx,
				cell.Concurrency, cell.Context, cell.Need.Cache.Value, cells, perCell)
		}
	}
	if len(s.Cells) != len(want) {
		t.Errorf("%d cells", len(s.Cells))
	}
}

// TestMissing: a collector that this machine lacks is refused before anything runs, unless its fallback is there.
func TestMissing(t *testing.T) {
	none := errors.New("no PMU")
	for _, c := range []struct {
		name, collector string
		missing         []string
		want            string // "" is fine
	}{
		{"graph", "{primary: graph}", []string{"perf", "fault", "page"}, ""},
		{"perf", "{primary: perf}", []string{"fault"}, ""},
		{"no perf", "{primary: perf}", []string{"perf"},
			"f.yaml:3:13: this machine cannot collect perf: no PMU; add collector.fallback: fault, write " +
				"collector.primary: graph or "},
		{"its fallback", "{primary: perf, fallback: fault}", []string{"perf"}, ""},
		{"neither", "{primary: perf, fallback: fault}", []string{"perf", "fault"},
			"perf: no PMU; and fault: no PMU; add collector.fallback: page"},
		{"no pages", "{primary: page}", []string{"page"},
			"this machine cannot collect page: no PMU; write collector.primary: graph or run it"},
	} {
		p := planned(t, whole+"collector: "+c.collector+"\n")
		p.Machine.Missing = map[string]error{}
		for _, name := range c.missing {
			p.Machine.Missing[name] = none
		}
		var problems *Problems
		switch err := p.Check(); {
		case c.want == "" && err != nil, c.want != "" &&
			(!errors.As(err, &problems) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestMissingCollectors: what is said to be there opens when it is asked for again, and what is missing has a reason.
func TestMissingCollectors(t *testing.T) {
	for name, err := range MissingCollectors() {
		if !slices.Contains([]string{"perf", "fault", "page"}, name) || err == nil || err.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := perf.OpenSampler(perf.SamplerOptions{})
	if err == nil {
		err = p.Close()
	}
	if missing := MissingCollectors()["perf"]; (err == nil) != (missing == nil) {
		t.Errorf("perf: %v, and missing says %v", err, missing)
	}
}
