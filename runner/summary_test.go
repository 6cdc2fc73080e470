package runner

import (
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	r := Result{
		Model: "m", ContextSize: 512, Seed: 7, SamplesChance: true, PromptTokens: 6, Tokens: 21, DecodeSteps: 20,
		Load: 36 * time.Millisecond, WarmUp: time.Millisecond, Prompt: 2 * time.Millisecond,
		Generation: 10 * time.Millisecond, Finish: FinishLength,
	}
	if r.PromptRate() != 3000 || r.GenerationRate() != 2000 {
		t.Errorf("rates %v and %v, want 3000 and 2000", r.PromptRate(), r.GenerationRate())
	}
	for finish, want := range map[Finish]string{
		FinishLength: "after 21 tokens", FinishStop: "the model ended", FinishContext: "-c makes it longer",
		FinishInterrupted: "interrupted after 21",
	} {
		r.Finish = finish
		var out strings.Builder
		if err := r.WriteSummary(&out); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{want, "seed 7", "6 tokens in 2.00 ms (3000.0 tokens/s)",
			"21 tokens in 10.0 ms (2000.0 tokens/s)", "loaded in 36.0 ms"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in %q", part, out.String())
			}
		}
	}
	var none strings.Builder
	err := (&Result{Finish: FinishStop}).WriteSummary(&none)
	if err != nil || !strings.Contains(none.String(), "nothing to do") || strings.Contains(none.String(), "tokens/s") ||
		strings.Contains(none.String(), "seed") {
		t.Errorf("a rate or seed that nobody measured: %q", none.String())
	}
}

// TestPromptsSummary: the rate is that of generation, or of prompts where nothing is generated.
func TestPromptsSummary(t *testing.T) {
	for tokens, want := range map[int]string{20: "(10.0 tokens/s out)", 0: "(3.0 tokens/s in)"} {
		var out strings.Builder
		r := PromptsResult{Answered: 2, PromptTokens: 6, Tokens: tokens, Elapsed: 2 * time.Second}
		if err := r.WriteSummary(&out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%d tokens out: %v, %q, want %q", tokens, err, out.String(), want)
		}
	}
}
