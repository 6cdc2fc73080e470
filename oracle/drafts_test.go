//go:build linux

package oracle

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// sequenceRows is what a request's rows leave in a sequence's memory: a row takes the place of the one that stood at
// its position.
func sequenceRows(tokens []rundir.TokenRecord, prompt []int32) []int32 {
	cells := slices.Clone(prompt)
	for _, token := range tokens {
		cells = append(cells[:token.Pos], token.ID)
	}
	return cells
}

// rows counts a request's tokens of a phase.
func rows(tokens []rundir.TokenRecord, phase string) (n int) {
	for _, token := range tokens {
		if token.Phase.String() == phase {
			n++
		}
	}
	return n
}

// TestServerDrafts lets a second model draft, in a context of its own. What was drafted and rejected was computed,
// so it is recorded; the server counts how much that was.
func TestServerDrafts(t *testing.T) {
	own, other := testenv.Model(t), synthetic(t, "llama", gguf.Q8_0, nil)
	pairs := map[string][2]string{"itself": {own, own}}
	if testenv.Nightly() {
		hybrid := synthetic(t, "jamba", gguf.Q8_0, nil)
		pairs["another"], pairs["hybrid"], pairs["of a hybrid"] = [2]string{own, other}, [2]string{hybrid,
			hybrid}, [2]string{hybrid, other}
	}
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) { drafts(t, pair[0], pair[1]) })
	}
}

func drafts(t *testing.T, target, model string) {
	s := serve(t, residual, "-m", target, "-np", "2", "-c", "1024", "-t", "1", "--no-webui",
		"--spec-type", "draft-simple", "-md", model, "-td", "1")
	prompts := []string{"func main() {", "func main() {", "package http", "func main() {\n\treturn"}
	var answers []completionAnswer
	var ids [][]int32
	for i, prompt := range prompts {
		answers = append(answers, s.ask(t, question{prompt: prompt, slot: int32(i / 3), n: 16,
			options: map[string]any{"temperature": 1.3, "seed": 3}}))
		ids = append(ids, s.tokenize(t, prompt))
	}
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	if len(got) != 2*len(prompts) || len(c.meta.Contexts) != 2 {
		t.Errorf("%d requests in %d contexts, want %d in 2", len(got), len(c.meta.Contexts), 2*len(prompts))
	}
	rejected := 0
	for i, a := range answers {
		id := request{seq: int32(i / 3), number: int32(i % 3)}
		drafted(t, got, id, ids[i], a, c.meta.Contexts[0].Type == "hybrid")
		rejected += a.Timings.Drafted - a.Timings.Accepted
	}
	if rejected == 0 {
		t.Error("no draft was rejected: nothing was tested")
	}
	for ctx, want := range []string{target, model} {
		if have := c.meta.Contexts[ctx]; have.Ctx != uint32(ctx) || have.Model.Path != want {
			t.Errorf("context %d is of %s, want %s", have.Ctx, have.Model.Path, want)
		}
	}
	c.setup(t, 6) // warm-up and probe of one, probe of the other
}

// TestServerDraftsTogether drafts for several slots at a time. The draft model computes their rows together, and its
// requests and prompts are those of its target.
func TestServerDraftsTogether(t *testing.T) {
	testenv.Slow(t)
	s := serve(t, residual, "-np", "4", "-c", "2048", "-t", "1", "--no-webui", "--spec-type", "draft-simple",
		"-md", testenv.Model(t), "-td", "1")
	prompts := []string{"func main() {", "package http", "import (", "func (s *Server) Close() error {\n\treturn"}
	answers, ids := make([]completionAnswer, 2*len(prompts)), make([][]int32, len(prompts))
	var group sync.WaitGroup
	for i, prompt := range prompts {
		ids[i] = s.tokenize(t, prompt)
		group.Go(func() {
			for k := range 2 {
				answers[2*i+k] = s.ask(t, question{prompt: prompt, slot: int32(i), n: 24, options: map[string]any{
					"temperature": 1.3, "seed": i + k, "cache_prompt": false}})
			}
		})
	}
	group.Wait()
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	if len(got) != 2*len(answers) {
		t.Fatalf("%d requests, want %d in each of 2 contexts", len(got), len(answers))
	}
	for i, a := range answers {
		drafted(t, got, request{seq: int32(i / 2), number: int32(i % 2)}, ids[i/2], a, false)
	}
}

// drafted compares a request in both contexts with the server's answer. The target verifies each token that was
// chosen together with its drafts; the draft model decodes to draft, and then what the target decoded. A memory
// that cannot be cut back is restored after a rejection, and what was accepted is decoded again.
func drafted(t *testing.T, all map[request][]rundir.TokenRecord, id request, prompt []int32, a completionAnswer,
	again bool) {
	t.Helper()
	target := all[id]
	id.ctx = 1
	draft := all[id]
	want := slices.Concat(prompt, a.Tokens[:a.Predicted-1])
	for what, tokens := range map[string][]rundir.TokenRecord{"target": target, "draft": draft} {
		if left := sequenceRows(tokens, prompt); len(left) < len(want) || !slices.Equal(left[:len(want)], want) {
			t.Errorf("%s of %+v: its memory holds %v, want %v", what, id, left, want)
		}
		if n := rows(tokens, "prefill"); n != a.Timings.Prompt {
			t.Errorf("%s of %+v: %d tokens of prompt, want %d", what, id, n, a.Timings.Prompt)
		}
	}
	verified := a.Predicted - 1 - a.Timings.Accepted + a.Timings.Drafted
	decoded := rows(target, "decode")
	if decoded != verified && !(again && decoded > verified) {
		t.Errorf("%+v: %d tokens decoded by the target, want %d: %+v", id, decoded, verified, a.Timings)
	}
	if n := rows(draft, "decode"); n != decoded+a.Timings.Drafted {
		t.Errorf("%+v: %d tokens decoded by the draft model, want %d: %+v", id, n, decoded+a.Timings.Drafted, a.Timings)
	}
}

// TestServerSelfDrafts takes drafts from the text itself.
func TestServerSelfDrafts(t *testing.T) {
	s := serve(t, residual, "-np", "1", "-c", "1024", "-t", "1", "--no-webui", "--spec-type", "ngram-simple",
		"--spec-ngram-simple-size-n", "3",
		"--spec-ngram-simple-size-m", "4")
	const prompt = "\t// These arena.\n\t//\n\t// These arena.\n\t//\n\t// These"
	a := s.ask(t, question{prompt: prompt, n: 40})
	ids := s.tokenize(t, prompt)
	c := s.end(t).sealed(t)
	wantRows(t, c)
	tokens := c.requests()[request{}]
	want := slices.Concat(ids, a.Tokens[:a.Predicted-1])
	if left := sequenceRows(tokens, ids); len(left) < len(want) || !slices.Equal(left[:len(want)], want) {
		t.Errorf("the memory holds %v, want %v", left, want)
	}
	got := fmt.Sprint(rows(tokens, "prefill"), rows(tokens, "decode"), len(c.tokens)-len(tokens))
	if want := fmt.Sprint(len(ids), a.Predicted-1-a.Timings.Accepted+a.Timings.Drafted, 0); got != want ||
		a.Timings.Drafted == 0 {
		t.Errorf("tokens of prompt, decoded, and of other requests: %s, want %s; %+v", got, want, a.Timings)
	}
}
