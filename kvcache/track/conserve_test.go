//go:build llama && linux

package track

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// shapes keeps what the context says of its model.
type shapes struct {
	*Recorder
	ctx ggmlhooks.Context
}

func (s *shapes) Context(c *ggmlhooks.Context) error {
	s.ctx = *c
	return nil
}

// TestConservation: keys and values that are written per token are 2 · layers · kv_dim · type size, exactly, in the
// table and in the events; each token reads itself and what stands before it, once per layer; and a warm-up is
// neither.
func TestConservation(t *testing.T) {
	testenv.NeedLlama(t)
	const prompt, steps = 37, 20
	all := map[string]order{
		"flash attention": {Model: "llama"},
		"transposed":      {Model: "llama", NoFlash: true},
		"streams":         {Model: "llama", Sequences: 2},
		"quantised keys":  {Model: "llama", TypeK: "q8_0", Micro: 16},
		"window":          {Model: "gemma2"},
		"warm-up":         {Warm: true},
		"experts":         {Model: "qwen3moe"},
	}
	for _, name := range testenv.Brief(slices.Sorted(maps.Keys(all)), 2) {
		o := all[name]
		for _, block := range testenv.Brief(testenv.ByDay([]int{5, 0, 1}, 1), 1) {
			o.Size, o.Prompt, o.Steps, o.Sequences, o.Folder = 512, prompt, steps, max(o.Sequences, 1), t.TempDir()
			if o.Micro == 0 {
				o.Micro = 64
			}
			model := o
			model.Model = synth(t, o.Model)
			t.Run(name, func(t *testing.T) { conserve(t, model, block) })
		}
	}
}

func conserve(t *testing.T, o order, block int) {
	var out bytes.Buffer
	written, evicted := int64(0), 0
	r, err := NewRecorder(Options{Out: &out, Block: block, Operation: func(op *kvcache.Operation) error {
		if op.Action == kvcache.Evict {
			evicted++
		}
		for _, l := range op.Layers {
			written += l.KWritten + l.VWritten
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &shapes{Recorder: r}
	run(t, o, ggmlhooks.NewAssembler(0, s), collect.Machine{Cells: true, Looking: ggmlhooks.LookRanges, LookEvery: 1})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	rows, texts, last := readTable(t, out.Bytes())
	elements := int64(s.ctx.NEmbd / s.ctx.NHead * s.ctx.NHeadKV)
	keyBytes, tokens := 2*elements, int64(o.Prompt+o.Steps)
	if o.TypeK == "q8_0" {
		keyBytes = elements / 32 * 34
	}
	perToken := int64(s.ctx.NLayer) * (keyBytes + 2*elements)
	if elements == 0 || written != tokens*perToken || evicted != 0 {
		t.Errorf("events say %d bytes and %d evictions, want %d bytes", written, evicted, tokens*perToken)
	}
	wantReads := int64(0)
	for done := int64(0); done < int64(o.Prompt); {
		done += min(int64(o.Micro), int64(o.Prompt)-done)
		wantReads += done
	}
	for i := range int64(o.Steps) {
		wantReads += int64(o.Prompt) + i + 1
	}
	reads, bytes := map[[2]string]int64{}, int64(0)
	for i, row := range rows {
		bytes += row["n_writes"] * row["cell_bytes"]
		reads[[2]string{texts[i]["kv"], string(rune('0' + row["layer"]))}] += row["n_reads"]
		alloc, first, last := row["alloc_ns"], row["first_write_ns"], row["last_write_ns"]
		if row["censored"] != 1 || row["evict_ns"] != -1 || alloc <= 0 || first < alloc || last < first ||
			row["first_read_ns"] < first || row["last_read_ns"] < row["first_read_ns"] {
			t.Fatalf("row %d: %v", i, row)
		}
		if cells := row["cell_end"] - row["cell_start"]; cells != row["cells"] ||
			row["pos_end"]-row["pos_start"] != cells || row["seq_id"] != 0 {
			t.Fatalf("row %d: %v", i, row)
		}
	}
	if bytes != tokens*perToken {
		t.Errorf("the table has %d bytes, want %d", bytes, tokens*perToken)
	}
	if len(reads) != 2*s.ctx.NLayer {
		t.Errorf("%d parts of %d layers", len(reads), s.ctx.NLayer)
	}
	for part, n := range reads {
		if n != wantReads {
			t.Errorf("%v: %d reads, want %d", part, n, wantReads)
		}
	}
	if want := (kvcache.Doubts{}); last.Doubts != want || last.Reuse.Requests != 1 ||
		last.Reuse.Needed != int64(o.Prompt) || last.Reuse.Reused != 0 {
		t.Errorf("doubts %+v, reuse %+v", last.Doubts, last.Reuse)
	}
}
