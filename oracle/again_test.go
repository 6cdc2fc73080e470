//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
)

// An again is why the last of some requests computed a part of its prompt again.
type again struct {
	model string
	flags []string
	asked []question
	cause kvcache.Cause
	// that the last prompt shares with is what some prompt holds: the text whose tokens were lost, or of which the
	// slot held other ones.
	shares string
	holder int   // whose slot held them, counted among those asked; -1: none's
	by     int64 // that took their cells, -1: none
}

// TestWhyAgain provokes each cause, in llama-server as it is.
func TestWhyAgain(t *testing.T) {
	own := testenv.Model(t)
	adapter := loraFile(t, own)
	window := func(c *synth.Config) { c.Layers, c.Window = 6, 16 }
	last := long + "\nvar last = 1"
	plain := func(prompt string, slot int32, options map[string]any) question {
		return question{prompt: prompt, slot: slot, n: 3, options: options}
	}
	for name, c := range map[string]again{
		"differs": {own, nil, []question{plain(long+"\nvar first = 1", 0, nil), plain(last, 0, nil)},
			kvcache.CauseDiffers, long + "\nvar first = 1", -1, -1},
		"other slot": {own, nil, []question{plain(last, 1, nil), plain(last, 0, nil)},
			kvcache.CauseOtherSlot, last, 0, -1},
		"similarity": {own, []string{"--slot-prompt-similarity", "0.9"},
			[]question{plain("package main\n", -1, nil), plain("package main\n"+last, -1, nil)},
			kvcache.CauseSimilarity, "package main\n", 0, -1},
		"evicted": {own, nil, []question{plain(last, 0, nil), plain("type T struct {", 0, nil), plain(last, 0, nil)},
			kvcache.CauseEvicted, last, -1, 1},
		"context shift": {own, []string{"-c", "256", "--context-shift"},
			[]question{{prompt: last, n: 256, options: map[string]any{"n_keep": 3}}, plain(last, 0, nil)},
			kvcache.CauseShift, last, -1, 0},
		"window": {synthetic(t, "gemma3", gguf.F16, window), []string{"--ctx-checkpoints", "0", "-ub", "32"},
			[]question{plain(strings.Repeat(last, 8), 0, nil), plain(strings.Repeat(last, 4), 0, nil)},
			kvcache.CauseWindow, strings.Repeat(last, 4), -1, -1},
		"recurrent": {synthetic(t, "jamba", gguf.F16, nil), []string{"--ctx-checkpoints", "0"},
			[]question{plain(last, 0, nil), plain(last, 0, nil)}, kvcache.CauseRecurrent, last, -1, -1},
		"cache_prompt": {own, nil, []question{plain(last, 0, nil), plain(last, 0,
			map[string]any{"cache_prompt": false})},
			kvcache.CauseOff, last, -1, -1},
		"adapters": {own, []string{"--lora", adapter}, []question{plain(last, 0, nil), plain(last, 0,
			map[string]any{"lora": []map[string]any{{"id": 0, "scale": 0.0}}})}, kvcache.CauseAdapters, last, -1, -1},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { c.check(t, func(*server) {}) })
	}
	steered := again{own, []string{"--tap-steer", "armed"}, []question{plain(last, 0, nil), plain(last, 0, nil)},
		kvcache.CauseSteering, last, -1, -1}
	t.Run("steering", func(t *testing.T) {
		steered.check(t, func(s *server) {
			testenv.Until(t, "the run takes commands", func() bool {
				sockets, _ := filepath.Glob(filepath.Join(s.out, "*", "*", rundir.SocketName))
				return len(sockets) > 0
			})
			ctl(t, s.out, "steer", steerFile(t, 6, 256))
		})
	})
}

// check asks, and does something before the last request.
func (c *again) check(t *testing.T, ready func(*server)) {
	tap := []string{"--tap-requests"}
	if len(c.flags) > 0 && strings.HasPrefix(c.flags[0], "--tap-") {
		tap, c.flags = append(tap, c.flags...), nil
	}
	s := serve(t, tap, append([]string{"-m", c.model, "-np", "2", "-c", "4096", "-t", "1",
		"--no-webui", "--cache-ram", "0"}, c.flags...)...)
	var answers []completionAnswer
	for i, q := range c.asked {
		if i == len(c.asked)-1 {
			ready(s)
		}
		answers = append(answers, s.ask(t, q))
	}
	prompt := s.tokenize(t, c.asked[len(c.asked)-1].prompt)
	held := s.tokenize(t, c.shares)
	if c.cause == kvcache.CauseDiffers { // behind the prompt, all chosen tokens but the last are in the cache
		held = append(held, answers[0].Tokens[:answers[0].Predicted-1]...)
	}
	records := s.recordedRequests(t)
	if len(records) != len(answers) {
		t.Fatalf("%d requests of %d", len(records), len(answers))
	}
	q, a := &records[len(records)-1], &answers[len(answers)-1]
	same := 0
	for same < min(len(held), len(prompt)-1) && held[same] == prompt[same] {
		same++
	}
	tokens, had, wants := int64(same-a.Timings.Cached), int64(-1), int64(-1)
	if c.cause == kvcache.CauseDiffers {
		tokens, had, wants = int64(min(len(held), len(prompt)-1)-same), int64(held[same]), int64(prompt[same])
	}
	slot := int64(-1)
	if c.holder >= 0 {
		slot = int64(answers[c.holder].Slot)
	}
	if q.Cause != c.cause || q.Again != tokens || tokens <= 0 || q.Pos != int64(a.Timings.Cached) || q.Had != had ||
		q.Wants != wants || q.Holder != slot || q.By != c.by || (q.AtNS != 0) != (c.by >= 0) {
		t.Errorf("%s, %d tokens from %d on, %d and not %d, slot %d, by %d at %d; want %s, %d from %d on, %d and not "+
			"%d, slot %d, by %d", kvcache.CauseName(q.Cause), q.Again, q.Pos, q.Wants, q.Had, q.Holder, q.By, q.AtNS,
			kvcache.CauseName(c.cause), tokens, a.Timings.Cached, wants, had, slot, c.by)
	}
	if bytes := tokens * tokenBytes(t, c.model); q.Bytes != bytes {
		t.Errorf("%d bytes, want %d", q.Bytes, bytes)
	}
	share := float64(q.FirstNS-q.PromptNS) * float64(tokens) / float64(a.Timings.Prompt)
	if math.Abs(float64(q.CostNS)-share) > 1 {
		t.Errorf("a cost of %d ns, want %.0f", q.CostNS, share)
	}
}

// tokenBytes is what keys and values of a token take in F16, by the header of a model.
func tokenBytes(t *testing.T, model string) (n int64) {
	t.Helper()
	f, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range f.Tensors { // rows of the projections
		if strings.HasSuffix(tensor.Name, ".attn_k.weight") || strings.HasSuffix(tensor.Name, ".attn_v.weight") {
			n += 2 * tensor.Shape[1]
		}
	}
	return n
}

// loraFile writes an adapter of rank 1 for one matrix of a model.
func loraFile(t *testing.T, model string) string {
	t.Helper()
	base, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	var m gguf.Metadata
	m.Set("general.type", "adapter")
	arch, _ := base.Metadata.Text("general.architecture")
	m.Set("general.architecture", arch)
	m.Set("adapter.type", "lora")
	m.Set("adapter.lora.alpha", float32(1))
	var tensors []gguf.Tensor
	for _, w := range base.Tensors {
		if w.Name == "blk.0.ffn_down.weight" {
			tensors = []gguf.Tensor{{Name: w.Name + ".lora_a", Type: gguf.F32, Shape: []int64{w.Shape[0], 1}},
				{Name: w.Name + ".lora_b", Type: gguf.F32, Shape: []int64{1, w.Shape[1]}}}
		}
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &m, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tensors {
		var data []byte
		for range tensors[i].Values() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(0.01))
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "lora.gguf")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
