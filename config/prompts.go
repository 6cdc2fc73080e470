package config

import (
	"fmt"
)

// Prompts is a run of many prompts, one per line of a file. Without PromptsFile, a run is one prompt.
type Prompts struct {
	PromptsFile  string // JSON lines, "-" for stdin; "": none
	ResultsFile  string // JSON lines; "": stdout
	Parallel     int    // sequences that are decoded at a time; 0: as Packs says
	TopLogprobs  int    // likeliest tokens whose log-probabilities are written with each token; 0: none
	AllLogits    bool   // every token of a prompt has logits, not the last one alone
	AllRows      bool   // the last layer is computed for every token of a prompt, and no logits are
	StopOnError  bool   // a line that fails is the last one
	ChatTemplate string // name of one of llama.cpp's templates, or a template; "": the model's own
}

// Packs reports whether prompts are packed into full micro-batches: nothing is to be generated after them, and no
// number of sequences is given.
func (r *Run) Packs() bool { return r.PromptsFile != "" && r.Predict == 0 && r.Parallel == 0 }

func promptsOptions() []llamaOption {
	return []llamaOption{
		{section: "many prompts", flag: "--prompts FNAME", own: true,
			help: `JSON lines {"id","prompt" or "messages","n_predict","seed",..} with settings by llama-server's ` +
				`names; - is stdin`,
			set: file(func(r *Run) *string { return &r.PromptsFile },
				"a file with one JSON object per line, or - for stdin")},
		{flag: "--results FNAME", own: true, byDef: "stdout",
			help: "file for the results, one JSON object per line, in the order of the prompts; - is stdout",
			set:  setResults},
		{flag: "-np, --parallel N", own: true,
			help: "prompts that are decoded at a time, in sequences that share the context (default: 1; with -n 0 " +
				"as many as fill a micro-batch)",
			set: integer(func(r *Run) *int { return &r.Parallel }, 1, "a number of sequences, at least 1")},
		{flag: "--logprobs K", own: true, byDef: "0",
			help: "write the log-probability of each token, and the K likeliest ones",
			set:  integer(func(r *Run) *int { return &r.TopLogprobs }, 0, "a number of tokens, or 0 for none")},
		{flag: "--all-logits", own: true,
			help: "compute the last layer and the logits of every token of a prompt, not of the last one alone",
			set:  boolean(func(r *Run) *bool { return &r.AllLogits })},
		{flag: "--all-rows", own: true,
			help: "compute the last layer of every token of a prompt, and no logits; with -n 0 and a recording",
			set:  boolean(func(r *Run) *bool { return &r.AllRows })},
		{flag: "--stop-on-error", own: true, help: "start no prompt after a line that fails",
			set: boolean(func(r *Run) *bool { return &r.StopOnError })},
		{flag: "--chat-template JINJA_TEMPLATE", env: "LLAMA_ARG_CHAT_TEMPLATE", byDef: "the model's own",
			help: `template for "messages": a name such as chatml, or a text that llama.cpp's library knows by its ` +
				`marks`,
			set: func(r *Run, s string) error { r.ChatTemplate = s; return nil }},
	}
}

// setResults takes - for what no file means: stdout.
func setResults(r *Run, s string) error {
	if s == "-" {
		r.ResultsFile = ""
		return nil
	}
	return file(func(r *Run) *string { return &r.ResultsFile }, "a file, which is overwritten")(r, s)
}

// file is an option whose value is a file name; want says what to give.
func file(field func(*Run) *string, want string) func(*Run, string) error {
	return func(r *Run, s string) error {
		if s == "" {
			return fmt.Errorf("no file name: give %s", want)
		}
		*field(r) = s
		return nil
	}
}
