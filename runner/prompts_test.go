//go:build llama

package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// answer runs prompts and returns their answers, and what stderr got.
func answer(t *testing.T, prompts string, args ...string) (answers []runner.Answer, stderr string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, []byte(prompts), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	cfg := parse(t, append([]string{"--prompts", path, "-t", "1"}, args...)...)
	_, err = runner.RunPrompts(context.Background(), runner.Options{Config: cfg, Stdout: &out, Stderr: &log})
	return decodeAnswers(t, out.Bytes()), log.String(), err
}

func decodeAnswers(t *testing.T, data []byte) (answers []runner.Answer) {
	t.Helper()
	for line := range bytes.Lines(data) {
		var a runner.Answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		answers = append(answers, a)
	}
	return answers
}

var severalPrompts = []string{"func main() {", "package ", "// Read reads ", "if err != nil {",
	"type T struct {\n\tname ", "for i := range ", "import (\n"}

// TestPromptsAreRuns compares each completion with that of a run of its own: seeded with one sequence, the
// likeliest tokens with several, whose batches are others.
func TestPromptsAreRuns(t *testing.T) {
	var lines, greedy strings.Builder
	var seeded, likeliest []string
	for i, prompt := range severalPrompts {
		n := 8 + 7*i%20
		text, err := json.Marshal(prompt)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines,
			`{"id":%d,"prompt":%s,"n_predict":%d,"seed":%d,"temperature":1.5,"top_k":200,"repeat_penalty":1.3,`+
				`"dry_multiplier":0.5}`+"\n", i, text, n, i+1)
		fmt.Fprintf(&greedy, `{"id":%d,"prompt":%s,"n_predict":%d,"temperature":0}`+"\n", i, text, n)
		common := []string{"-p", prompt, "-n", fmt.Sprint(n), "-t", "1", "--no-escape"}
		one, _ := ours(t, append(common, "-s", fmt.Sprint(i+1), "--temp", "1.5", "--top-k", "200", "--repeat-penalty",
			"1.3", "--dry-multiplier", "0.5")...)
		seeded = append(seeded, one)
		one, _ = ours(t, append(common, "--temp", "0")...)
		likeliest = append(likeliest, one)
	}
	compare := func(prompts string, want []string, args ...string) {
		t.Helper()
		answers, stderr, err := answer(t, prompts, args...)
		if err != nil || len(answers) != len(want) {
			t.Fatalf("%q: %v, %d answers: %s", args, err, len(answers), stderr)
		}
		for i, a := range answers {
			if a.Text != want[i] || a.Line != i+1 || string(a.ID) != fmt.Sprint(i) {
				t.Errorf("%q, line %d, id %s: %q, alone %q", args, a.Line, a.ID, a.Text, want[i])
			}
			if len(a.TokenNs) != len(a.Tokens) || !slices.IsSorted(a.TokenNs) || a.PromptNs > a.TokenNs[0] ||
				a.PromptTokens == 0 {
				t.Errorf("%q, line %d: times or counts are wrong: %+v", args, a.Line, *a.Completion)
			}
		}
	}
	compare(lines.String(), seeded, "--no-escape")
	compare(lines.String(), seeded, "-b", "4", "-ub", "4")
	compare(greedy.String(), likeliest)
	compare(greedy.String(), likeliest, "-np", "3")
	compare(greedy.String(), likeliest, "-np", "12", "-c", "3072")
	compare(greedy.String(), likeliest, "-np", "2", "-b", "5")
}

// TestPromptsBursts compares prompts that are completed in bursts with those of which each token is looked at, in
// one sequence and at the end of several: text, tokens, reason and order of times; with stops and reverse prompts,
// limits, a full context, a seed.
func TestPromptsBursts(t *testing.T) {
	var bursts, single strings.Builder
	for i, more := range []string{
		`"n_predict":90,"temperature":0`, `"n_predict":200,"seed":3,"temperature":1.4,"repeat_penalty":1.2`,
		`"temperature":0`,
		`"n_predict":120,"temperature":0,"stop":["nil, err","}\n\n"]`, `"n_predict":1,"temperature":0`,
		`"n_predict":150,"temperature":1,"seed":8,"stop":["if "]`,
	} {
		text, err := json.Marshal(severalPrompts[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&bursts, `{"prompt":%s,%s}`+"\n", text, more)
		fmt.Fprintf(&single, `{"prompt":%s,%s,"n_probs":1}`+"\n", text, more)
	}
	for _, args := range testenv.ByDay([][]string{{"-c", "768", "-np", "3"},
		{"-c", "256", "-r", "func", "-r", "err"}, {"-c", "256"}}, 2) {
		got, stderr, err := answer(t, bursts.String(), args...)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		want, stderr, err := answer(t, single.String(), args...)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		for i, a := range got {
			b := want[i]
			if len(b.Logprobs) != len(b.Tokens) {
				t.Fatalf("%q, line %d: %d logprobs of %d tokens", args, a.Line, len(b.Logprobs), len(b.Tokens))
			}
			if !slices.Equal(a.Tokens, b.Tokens) || a.Text != b.Text || a.Finish != b.Finish ||
				a.PromptTokens != b.PromptTokens {
				t.Errorf("%q, line %d: %d tokens, %s, %q\none by one %d tokens, %s, %q", args, a.Line, len(a.Tokens),
					a.Finish, a.Text, len(b.Tokens), b.Finish, b.Text)
			}
			if !slices.IsSorted(a.TokenNs) || len(a.TokenNs) != len(a.Tokens) || a.TokenNs[0] < a.PromptNs ||
				a.TokenNs[len(a.TokenNs)-1] > a.PromptNs+a.GenerationNs {
				t.Errorf("%q, line %d: times %v", args, a.Line, a.TokenNs)
			}
		}
	}
}

// TestPromptsSequences checks that several sequences are in use at a time, and that each sampler has a state of its
// own: one seed gives one text, whatever runs beside it.
func TestPromptsSequences(t *testing.T) {
	line := `{"prompt":"func ","n_predict":16,"seed":5,"temperature":1}` + "\n"
	answers, _, err := answer(t, strings.Repeat(line, 6), "-np", "3", "-c", "768")
	if err != nil {
		t.Fatal(err)
	}
	sequences := make(map[llama.Seq]int)
	for _, a := range answers {
		sequences[a.Sequence]++
		if a.Text != answers[0].Text || a.Seed != 5 {
			t.Errorf("line %d: %q with seed %d, line 1 %q", a.Line, a.Text, a.Seed, answers[0].Text)
		}
	}
	if len(sequences) != 3 || sequences[2] != 2 {
		t.Errorf("prompts per sequence: %v", sequences)
	}
}

// TestPromptsBadLines checks that what is wrong with a line is reported with its number, and the rest is answered in
// order.
func TestPromptsBadLines(t *testing.T) {
	good := `{"prompt":"func ","n_predict":2}`
	lines := []string{
		"\ufeff" + good, "", `{"id":"a","prompt":"x","n_predict":1}`, "\xff", `{"id":"a","prompt":"x"}`,
		`{"prompt":"x","temprature":1}`,
		`{"prompt":"` + strings.Repeat("word ", 600) + `"}`, `{"prompt":[999999]}`,
		`{"prompt":"a","grammar":"root ::= ("}`, good + "\r",
		`{"messages":[{"role":"user","content":"hi"}]}`, good,
	}
	want := map[int]string{4: "not valid UTF-8", 5: `id "a" is that of line 3`, 6: `did you mean "temperature"?`,
		7: "too long", 8: "no token 999999", 9: "grammar", 11: "--chat-template"}
	for _, parallel := range []string{"1", "3"} {
		answers, stderr, err := answer(t, strings.Join(lines, "\n"), "-np", parallel, "-c", "768")
		if !errors.Is(err, runner.ErrPrompts) || !strings.Contains(err.Error(), "7 of 11") {
			t.Errorf("error %v", err)
		}
		var numbers []int
		for _, a := range answers {
			numbers = append(numbers, a.Line)
			if text := want[a.Line]; !strings.Contains(a.Error, text) || text == "" && a.Error != "" ||
				(a.Error == "") != (a.Completion != nil) {
				t.Errorf("line %d: error %q, want one with %q", a.Line, a.Error, text)
			}
			place := fmt.Sprintf("line %d", a.Line)
			if a.Line == 5 {
				place += `, id "a"`
			}
			if a.Error != "" && !strings.Contains(stderr, place+": "+a.Error+"\n") {
				t.Errorf("stderr does not name line %d: %s", a.Line, stderr)
			}
		}
		if !slices.Equal(numbers, []int{1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
			t.Errorf("-np %s: answers for lines %v", parallel, numbers)
		}
	}
	if answers, _, err := answer(t, strings.Join(lines, "\n"), "--stop-on-error"); len(answers) != 3 ||
		!errors.Is(err, runner.ErrPrompts) {
		t.Errorf("--stop-on-error: %d answers, %v", len(answers), err)
	}
}

func TestPromptsEmptyFile(t *testing.T) {
	for _, text := range []string{"", "\n\n", "\ufeff"} {
		if answers, _, err := answer(t, text); !errors.Is(err, runner.ErrPrompt) ||
			!strings.Contains(err.Error(), "no prompts") || len(answers) > 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPromptsEnds checks the reasons to end that need no chance.
func TestPromptsEnds(t *testing.T) {
	model, err := llama.LoadModelBytes(context.Background(), "gopher", llamatap.DefaultModel,
		llama.DefaultModelParams())
	if err != nil {
		t.Fatal(err)
	}
	eos := model.Vocab().End()
	model.Close()
	lines := fmt.Sprintf(`{"prompt":"func ","n_predict":0}
{"prompt":[1,%d],"n_predict":5}
{"prompt":"func ","n_predict":-1,"ignore_eos":true}
{"prompt":"func ","n_predict":4,"logit_bias":[[%d,1000]]}`, eos, eos)
	answers, _, err := answer(t, lines, "-c", "256")
	if err != nil {
		t.Fatal(err)
	}
	var ends []runner.Finish
	for _, a := range answers {
		ends = append(ends, a.Finish)
	}
	if want := []runner.Finish{runner.FinishLength, runner.FinishStop, runner.FinishContext,
		runner.FinishStop}; !slices.Equal(ends, want) {
		t.Errorf("%q, want %q", ends, want)
	}
	if n := answers[2].PromptTokens + len(answers[2].Tokens); n != 256 {
		t.Errorf("a full context of 256 holds %d tokens", n)
	}
}

// TestPromptsInterrupted ends the context while one prompt is done, two are under way and input is open.
func TestPromptsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stdin, feed := io.Pipe()
	defer feed.Close()
	go func() {
		_, _ = io.WriteString(feed, `{"id":1,"prompt":"func ","n_predict":2,"ignore_eos":true}
{"id":2,"prompt":"func ","n_predict":-1,"ignore_eos":true}
{"id":3,"prompt":"func ","n_predict":-1,"ignore_eos":true}
`)
	}()
	var out bytes.Buffer
	first := func(p []byte) (int, error) {
		cancel(errors.New("enough"))
		return out.Write(p)
	}
	cfg := parse(t, "--prompts", "-", "-np", "2", "-c", "60000", "-t", "1")
	result, err := runner.RunPrompts(ctx, runner.Options{Config: cfg, Stdin: stdin, Stdout: writerFunc(first)})
	if !errors.Is(err, runner.ErrInterrupted) || !strings.Contains(err.Error(), "enough") || !result.Interrupted ||
		result.Answered != 1 {
		t.Errorf("%v, %+v", err, result)
	}
	answers := decodeAnswers(t, out.Bytes())
	if len(answers) < 2 || answers[0].Finish != runner.FinishLength || answers[1].Finish != runner.FinishInterrupted {
		t.Fatalf("%d answers: %s", len(answers), out.Bytes())
	}
	if n := len(answers[1].Tokens); n > 4 {
		t.Errorf("the second prompt went on for %d tokens; it was interrupted behind the second of the first", n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestPromptsResultsFile(t *testing.T) {
	dir := t.TempDir()
	prompts, results := filepath.Join(dir, "p"), filepath.Join(dir, "r")
	if err := os.WriteFile(prompts, []byte(`{"prompt":"func ","n_predict":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runner.RunPrompts(context.Background(),
		runner.Options{Config: parse(t, "--prompts", prompts, "--results", results)}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(results)
	if answers := decodeAnswers(t, data); err != nil || len(answers) != 1 || len(answers[0].Tokens) != 2 {
		t.Errorf("%v: %s", err, data)
	}
	_, err = runner.RunPrompts(context.Background(),
		runner.Options{Config: parse(t, "--prompts", prompts, "--results", prompts)})
	if data, readErr := os.ReadFile(prompts); err == nil || readErr != nil || len(data) == 0 {
		t.Errorf("results over prompts: %v, %v, %q left", err, readErr, data)
	}
}
