package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteRunReference writes docs/RUN_FLAGS.md: every flag of llamatap run that llama.cpp has too, and where run
// differs from llama-completion.
func WriteRunReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(runReferenceHead)
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.section != "" {
			fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | default | meaning |\n|---|---|---|---|\n",
				strings.ToUpper(o.section[:1])+o.section[1:])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(o.spellings()), code(o.env), code(o.byDef), cell(o.help))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// spellings are the names of an option, each as code, and its value after the last.
func (o *llamaOption) spellings() string {
	var names []string
	for _, name := range append(append([]string(nil), o.names...), o.negative...) {
		names = append(names, code(dashed(name)))
	}
	if o.form != "" {
		names[len(names)-1] += " " + code(o.form)
	}
	return strings.Join(names, ", ")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

const runReferenceHead = `# The flags of llamatap run

Generated from the option table of package config: ` + "`go generate ./config`" + `. Do not edit.

` + "`llamatap run`" + ` does what ` + "`llama-completion -no-cnv --no-display-prompt`" + ` of llama.cpp 0.7.0 does with the same flags: names, environment
variables and defaults are its own, and so is the text, byte for byte. What records stands in [FLAGS.md](FLAGS.md). What it lacks
(conversations, input while it runs, JSON schemas, …) llama.cpp's own program has under the tap: ` + "`llamatap llama-completion`" + `.

Where it differs:

- The generated text goes to stdout and nothing else does; it never asks for input.
- ` + "`--embeddings`" + ` and what belongs to it are llama-embedding's, and so is the output, byte for byte; ` + "`-np`" + ` is not there, and scores of ` + "`--pooling rank`" + ` are never
  normalised, which llama-embedding leaves alone with ` + "`--embd-normalize -1`" + ` only.
- ` + "`--prompts`" + ` and what belongs to it are its own: [PROMPTS.md](PROMPTS.md).
- ` + "`-n 0`" + ` decodes the prompt; llama-completion does nothing then.
- What llama-completion ignores is an error here: unknown samplers, ` + "`--dry-base`" + ` below 1, prompts that are no UTF-8.
- Where a grammar and a bias leave no token, the run ends with an error; llama-completion aborts.
- A prompt cache is written under another name and renamed, so that it is never half a file. It is left as it was when a run is
  interrupted, or ends because of how the prompt ends.
- ` + "`-r`, `-l`, `--dry-sequence-breaker`, `--lora…` and `--control-vector…`" + ` add up when they are given several times; of other flags the last
  one counts.
`
