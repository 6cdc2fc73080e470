package config

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestPromptsFlags(t *testing.T) {
	run, err := parseRun(strings.Fields(
		"--prompts a --results b -np 3 --logprobs 2 --all-logits --stop-on-error --chat-template chatml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Prompts{"a", "b", 3, 2, true, false, true, "chatml"}); run.Prompts != want {
		t.Errorf("%+v, want %+v", run.Prompts, want)
	}
	if run, err = parseRun(strings.Fields("--prompts - --results -"), nil); err != nil || run.PromptsFile != "-" ||
		run.ResultsFile != "" {
		t.Errorf("stdin to stdout: %+v, %v", run, err)
	}
}

func TestParseRequest(t *testing.T) {
	run, err := parseRun(strings.Fields("--prompts p --seed 3 --top-k 7 -l 1+1 --dry-sequence-breaker z"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := run.ParseRequest([]byte(`{"id":"x","prompt":"a\nb","n_predict":4,"temperature":0.5,
		"samplers":["top_k","temp"],"ignore_eos":true,"logit_bias":[[5,false],[6,-1.5]],
		"dry_sequence_breakers":["\n","\\n"],"n_probs":2,"grammar":"root ::= \"a\"","stop":["\n\n","b"]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := q.Settings
	if string(q.ID) != `"x"` || q.Prompt != "a\nb" || s.Predict != 4 || s.Temperature != 0.5 || !s.IgnoreEOS ||
		s.TopLogprobs != 2 || s.Grammar != `root ::= "a"` {
		t.Errorf("%+v, %+v", q, s)
	}
	if !reflect.DeepEqual(q.Stop, []string{"\n\n", "b"}) {
		t.Errorf("stop is %q", q.Stop)
	}
	if one, err := run.ParseRequest([]byte(`{"prompt":"a","stop":"x"}`)); err != nil ||
		!reflect.DeepEqual(one.Stop, []string{"x"}) {
		t.Errorf("one stop: %q, %v", one.Stop, err)
	}
	if s.Seed != 3 || s.TopK != 7 || !s.Given("temp") || !s.Given("top-k") {
		t.Errorf("what the flags say is lost: %+v", s.Sampling)
	}
	if !reflect.DeepEqual(s.Samplers, []string{"top_k", "temperature"}) ||
		!reflect.DeepEqual(s.LogitBias, []LogitBias{{5, float32(math.Inf(-1))}, {6, -1.5}}) ||
		!reflect.DeepEqual(s.DryBreakers, []string{"\n", `\\n`}) {
		t.Errorf("%+v", s.Sampling)
	}
	if run.Predict != -1 || run.Given("temp") || len(run.LogitBias) != 1 || len(run.DryBreakers) != 1 ||
		run.DryBreakers[0] != "z" {
		t.Errorf("the line changed the run: %+v", run)
	}
}

// TestParseRequestErrors checks that every wrong line has one line that says what and what to do.
func TestParseRequestErrors(t *testing.T) {
	tests := []struct{ line, want string }{
		{``, "no JSON object"},
		{`{`, "no JSON object"},
		{`null`, "no JSON object"},
		{`[1]`, "one per line"},
		{`{"prompt":"a"} {"prompt":"b"}`, "one per line"},
		{"{\"prompt\":\"a\xff\"}", "UTF-8"},
		{`{}`, `one of "prompt" and "messages"`},
		{`{"prompt":"a","messages":[]}`, `one of "prompt" and "messages"`},
		{`{"prompt":5}`, "a text, or a list of token ids"},
		{`{"prompt":null}`, "a text, or a list of token ids"},
		{`{"prompt":[]}`, "a text, or a list of token ids"},
		{`{"prompt":[1.5]}`, "a text, or a list of token ids"},
		{`{"messages":[]}`, "give a list"},
		{`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "texts as contents"},
		{`{"messages":[{"content":"a"}]}`, `a "role"`},
		{`{"id":{},"prompt":"a"}`, "a string or a number"},
		{`{"prompt":"a","tempreature":1}`, `did you mean "temperature"?`},
		{`{"prompt":"a","xyzzy":1}`, "leave it out"},
		{`{"prompt":"a","temperature":"1"}`, `"temperature": give a number`},
		{`{"prompt":"a","n_predict":1.5}`, `"n_predict": give -1`},
		{`{"prompt":"a","samplers":"kt"}`, "a list of texts"},
		{`{"prompt":"a","samplers":["topq"]}`, "no sampler"},
		{`{"prompt":"a","grammar":1}`, "give a text"},
		{`{"prompt":"a","ignore_eos":1}`, "true or false"},
		{`{"prompt":"a","logit_bias":[[1]]}`, "[[15043,1.0]"},
		{`{"prompt":"a","logit_bias":[[1.5,1]]}`, "15043+1"},
		{`{"prompt":"a","logit_bias":[["the",1]]}`, "[[15043,1.0]"},
		{`{"prompt":"a","json_schema":{}}`, "llama-cli"},
		{`{"prompt":"a","stop":5}`, "a text, or a list of texts"},
		{`{"prompt":"a","stop":["b",""]}`, "leave it out"},
		{`{"prompt":"a","n_predict":1,"n_predict":2}`, `"n_predict" is given twice`},
		{`{"prompt":"a","prom\u0070t":"b"}`, `"prompt" is given twice`},
		{`{"id":1,"id":2,"prompt":"a"}`, `"id" is given twice`},
		{`{"prompt":"a","stopp":"b"}`, `did you mean "stop"?`},
	}
	run, err := parseRun([]string{"--prompts", "p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		_, err := run.ParseRequest([]byte(test.line))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an error with %q", test.line, err, test.want)
		}
	}
}

// TestRequestKeys checks that every key of a request sets an option that exists.
func TestRequestKeys(t *testing.T) {
	keys := make(map[string]bool)
	for i := range llamaOptions {
		keys[llamaOptions[i].key] = true
	}
	for name, key := range requestKeys {
		if !keys[key] {
			t.Errorf("%s: there is no option %s", name, key)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"id":1,"prompt":"a","logit_bias":[[1,false]],"seed":4}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}],"samplers":[]}`))
	run := NewRun()
	f.Fuzz(func(t *testing.T, line []byte) {
		q, err := run.ParseRequest(line)
		if err == nil && q.Settings == nil {
			t.Error("no settings and no error")
		}
	})
}

// TestRequestIDOfError: a line with an error keeps its id, so that its answer has it.
func TestRequestIDOfError(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":"a","prompt":"x","n_predict":1,"n_predict":2}`: `"a"`,
		`{"prompt":"x","prompt":"y","id":7}`:                  "7",
		`{"id":1,"id":2,"prompt":"a"}`:                        "", // which of them is not known
		`{"id":3,"prompt":"x","top_k":"many"}`:                "3",
	} {
		q, err := new(Run).ParseRequest([]byte(line))
		if err == nil || string(q.ID) != want {
			t.Errorf("%s: id %q, %v", line, q.ID, err)
		}
	}
}

// A line of prompts whose logits are not computed can ask for nothing that takes them.
func TestParseRequestOfAllRows(t *testing.T) {
	run, err := parseRun(strings.Fields("--prompts p -n 0 --all-rows"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{`{"prompt":"a"}`: "", `{"prompt":"a","n_predict":0}`: "",
		`{"prompt":"a","n_predict":2}`: "--all-rows computes no logits",
		`{"prompt":"a","n_probs":2}`:   "--all-rows computes no logits"} {
		_, err := run.ParseRequest([]byte(line))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
