package runner

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
)

func TestLikeliest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		logits := make([]float32, 1+random.IntN(50))
		ids := make([]llama.Token, len(logits))
		for i := range logits {
			logits[i], ids[i] = float32(random.IntN(12)), llama.Token(i) // equal ones are frequent
		}
		slices.SortStableFunc(ids, func(a, b llama.Token) int { return int(logits[b] - logits[a]) })
		for _, k := range []int{1, 3, 60} {
			if got, want := likeliest(logits, k), ids[:min(k, len(ids))]; !slices.Equal(got, want) {
				t.Fatalf("%d of %v: %v, want %v", k, logits, got, want)
			}
		}
	}
}

// TestLogprobsNotFinite: JSON has no NaN and no infinity. A log-probability that is one is absent, and the other lines
// of a run are written.
func TestLogprobsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		finite []bool
		top    []llama.Token
	}{
		{[]float32{nan, nan}, []bool{false, false}, nil},
		{[]float32{1, nan, 2}, []bool{false, false, false}, []llama.Token{2, 0}},
		{[]float32{inf, 1}, []bool{false, false}, []llama.Token{0, 1}},
		{[]float32{0, -inf, 0}, []bool{true, false, true}, []llama.Token{0, 2, 1}},
	} {
		if top := likeliest(c.logits, 9); !slices.Equal(top, c.top) {
			t.Errorf("likeliest of %v: %v, want %v", c.logits, top, c.top)
		}
		logprob := logSoftmax(c.logits)
		for id, finite := range c.finite {
			p := logprob(llama.Token(id))
			if (p != nil) != finite {
				t.Errorf("token %d of %v: %v", id, c.logits, p)
			}
			line, err := json.Marshal(Answer{Completion: &Completion{Logprobs: []TokenLogprobs{{Logprob: p}}}})
			if err != nil || finite != bytes.Contains(line, []byte(`"logprob":-0.69`)) {
				t.Errorf("token %d of %v: %s, %v", id, c.logits, line, err)
			}
		}
	}
}

// TestAnswersInOrder adds answers in another order than that of their prompts.
func TestAnswersInOrder(t *testing.T) {
	var out bytes.Buffer
	a := answers{out: &out, ready: make(map[int]Answer)}
	for _, i := range []int{2, 0, 1} {
		if err := a.add(i, Answer{Line: i + 1, Error: "<&>"}); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"line":1,"error":"<&>"}` + "\n" + `{"line":2,"error":"<&>"}` + "\n" + `{"line":3,"error":"<&>"}` + "\n"
	if out.String() != want || len(a.ready) > 0 {
		t.Errorf("%s", out.String())
	}
}

func TestCompletionBytes(t *testing.T) {
	var c Completion
	c.setText([]byte("a\xff"))
	line, err := json.Marshal(c)
	if err != nil || !bytes.Contains(line, []byte(`"text":"a\ufffd","text_bytes":"Yf8="`)) {
		t.Errorf("%v: %s", err, line)
	}
}
