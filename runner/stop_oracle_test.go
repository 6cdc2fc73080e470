//go:build llama

package runner_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/runner"
)

// TestStopsAreServers compares where a line's "stop" ends the text with llama-server: in the middle of a token,
// over several, where two come up at once, and where none does.
func TestStopsAreServers(t *testing.T) {
	const prompt = "func (r *Reader) Read(p []byte) (n int, err error) {\n"
	whole, _, err := answer(t, line(t, prompt, nil))
	if err != nil {
		t.Fatal(err)
	}
	text := whole[0].Text
	if len(text) < 40 {
		t.Fatalf("the text %q is too short to test with", text)
	}
	url := serve(t) + "/completion"
	for _, test := range []struct {
		stop any
		ends bool
	}{
		{text[10:11], true}, {text[10:20], true}, {[]string{text[25:30], text[20:23]}, true},
		{[]string{text[12:14], text[11:15]}, true},
		{text[:3], true}, {"never comes", false}, {[]string{}, false},
	} {
		body := line(t, prompt, test.stop)
		answers, _, err := answer(t, body)
		if err != nil {
			t.Fatal(err)
		}
		var theirs struct {
			Content string
			Type    string `json:"stop_type"`
			Tokens  int    `json:"tokens_predicted"`
		}
		if err := json.Unmarshal(post(t, url, body), &theirs); err != nil {
			t.Fatal(err)
		}
		ours := answers[0]
		if ours.Text != theirs.Content || len(ours.Tokens) != theirs.Tokens ||
			(ours.Finish == runner.FinishWord) != (theirs.Type == "word") {
			t.Errorf("%q: %q after %d tokens, %s; llama-server %+v", test.stop, ours.Text, len(ours.Tokens),
				ours.Finish, theirs)
		}
		if (ours.Finish == runner.FinishWord) != test.ends || !strings.HasPrefix(text, ours.Text) {
			t.Errorf("%q: ended by %s with %q", test.stop, ours.Finish, ours.Text)
		}
	}
}

// line is a greedy request for 30 tokens.
func line(t *testing.T, prompt string, stop any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"prompt": prompt, "n_predict": 30, "temperature": 0, "seed": 1,
		"stop": stop})
	if err != nil {
		t.Fatal(fmt.Errorf("%v: %w", stop, err))
	}
	return string(text)
}
