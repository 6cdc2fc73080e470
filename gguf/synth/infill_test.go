package synth

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

func TestInfill(t *testing.T) {
	c, err := New("llama", "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Infill = true
	m, err := Plan(c, donor(t))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := donor(t).Texts("tokenizer.ggml.tokens")
	tokens, _ := m.Meta.Texts("tokenizer.ggml.tokens")
	kinds, _ := m.Meta.Ints("tokenizer.ggml.token_type")
	if len(tokens) != len(before) || len(kinds) != len(before) {
		t.Fatalf("%d tokens, %d kinds", len(tokens), len(kinds))
	}
	changed := 0
	for i := range tokens {
		if tokens[i] != before[i] {
			changed++
		}
	}
	if changed != len(infillTokens) {
		t.Errorf("%d tokens differ from the donor's", changed)
	}
	for _, want := range infillTokens {
		id, ok := m.Meta.Int("tokenizer.ggml." + want.key)
		if !ok || tokens[id] != want.text || kinds[id] != controlToken {
			t.Errorf("%s is %d (%v)", want.key, id, ok)
		}
	}
	if donor(t).Has("tokenizer.ggml.fim_pre_token_id") {
		t.Error("the donor changed")
	}
}

func TestInfillNeedsRoom(t *testing.T) {
	var meta gguf.Metadata
	meta.Set("tokenizer.ggml.tokens", []string{"a", "b", "c"})
	meta.Set("tokenizer.ggml.token_type", []int32{1, unusedToken, unusedToken})
	if err := AddInfill(&meta); err == nil || !strings.Contains(err.Error(),
		"needs 7 unused tokens and the tokenizer has 2") {
		t.Errorf("got %v", err)
	}
	if meta.Len() != 2 {
		t.Error("keys were set")
	}
}
