//go:build llama

package runner_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
)

// slotAnswer is what the tests of slot files need of llama-server's answers.
type slotAnswer struct {
	Content  string
	Tokens   []llama.Token
	Saved    int `json:"n_saved"`
	Restored int `json:"n_restored"`
	Timings  struct {
		Prompt int `json:"prompt_n"`
		Cached int `json:"cache_n"`
	}
}

// TestSlotFiles exchanges the state of a sequence with llama-server both ways: each goes on where the other stopped.
func TestSlotFiles(t *testing.T) {
	dir := t.TempDir()
	url := serve(t, "--slot-save-path", dir)
	ask := func(path string, body map[string]any) (a slotAnswer) {
		t.Helper()
		text, err := json.Marshal(body)
		if err == nil {
			err = json.Unmarshal(post(t, url+path, string(text)), &a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const prompt = "func (r *Reader) Read(p []byte) (n int, err error) {\n"
	first := ask("/completion", map[string]any{"prompt": prompt, "n_predict": 8, "temperature": 0,
		"return_tokens": true, "cache_prompt": true})
	saved := ask("/slots/0?action=save", map[string]any{"filename": "theirs"})
	whole := ask("/completion", map[string]any{"prompt": prompt, "n_predict": 16, "temperature": 0,
		"return_tokens": true, "cache_prompt": false})
	if len(first.Tokens) != 8 || !slices.Equal(first.Tokens, whole.Tokens[:8]) {
		t.Fatalf("llama-server chose %v and then %v", first.Tokens, whole.Tokens)
	}

	s := newSequence(t)
	tokens, err := s.x.LoadSequence(filepath.Join(dir, "theirs"), 0)
	if err != nil || len(tokens) != saved.Saved || !slices.Equal(tokens[len(tokens)-7:], first.Tokens[:7]) {
		t.Fatalf("loaded %v, %v; llama-server saved %d tokens and chose %v", tokens, err, saved.Saved, first.Tokens)
	}
	if got := s.goOn(t, llama.Pos(len(tokens)), first.Tokens[7], 8); !slices.Equal(got, whole.Tokens[8:]) {
		t.Errorf("from llama-server's state: %v, llama-server continues with %v", got, whole.Tokens[8:])
	}

	other := newSequence(t)
	if err := other.decode(0, tokens...); err != nil {
		t.Fatal(err)
	}
	if err := other.x.SaveSequence(filepath.Join(dir, "ours"), 0, tokens); err != nil {
		t.Fatal(err)
	}
	ask("/slots/0?action=erase", map[string]any{})
	if a := ask("/slots/0?action=restore", map[string]any{"filename": "ours"}); a.Restored != len(tokens) {
		t.Errorf("llama-server restored %d tokens of %d", a.Restored, len(tokens))
	}
	next := ask("/completion", map[string]any{"prompt": append(tokens, first.Tokens[7]), "n_predict": 8,
		"temperature": 0, "return_tokens": true, "cache_prompt": true})
	if !slices.Equal(next.Tokens, whole.Tokens[8:]) || next.Timings.Prompt != 1 || next.Timings.Cached != len(tokens) {
		t.Errorf("from our state llama-server continues with %+v, want %v and one token decoded", next,
			whole.Tokens[8:])
	}
}

// sequence is a context with a batch.
type sequence struct {
	x     *llama.Context
	batch *llama.Batch
}

func newSequence(t *testing.T) sequence {
	t.Helper()
	m, err := llama.LoadModel(context.Background(), testenv.Model(t), llama.DefaultModelParams())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	params := llama.DefaultContextParams()
	params.Threads, params.BatchThreads = 1, 1
	x, err := m.NewContext(params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	batch, err := llama.NewBatch(x.Batch(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { batch.Close() })
	return sequence{x, batch}
}

func (s sequence) decode(at llama.Pos, tokens ...llama.Token) error {
	s.batch.Reset()
	for i, token := range tokens {
		if err := s.batch.Add(token, at+llama.Pos(i), i == len(tokens)-1, 0); err != nil {
			return err
		}
	}
	return s.x.Decode(s.batch)
}

// goOn decodes a token and then the likeliest one n times, and returns those.
func (s sequence) goOn(t *testing.T, at llama.Pos, token llama.Token, n int) (chosen []llama.Token) {
	t.Helper()
	for range n {
		if err := s.decode(at, token); err != nil {
			t.Fatal(err)
		}
		logits, err := s.x.Logits(-1)
		if err != nil {
			t.Fatal(err)
		}
		token = llama.Token(slices.Index(logits, slices.Max(logits)))
		chosen = append(chosen, token)
		at++
	}
	return chosen
}
