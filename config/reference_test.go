package config

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/cli"
)

//go:generate go test -run TestGolden -update .

var update = flag.Bool("update", false, "rewrite golden files, docs/FLAGS.md and docs/RUN_FLAGS.md")

func TestGoldenReference(t *testing.T) {
	compareGolden(t, "../docs/FLAGS.md", tapReference())
}

func TestGoldenRunReference(t *testing.T) {
	compareGolden(t, "../docs/RUN_FLAGS.md", runReference())
}

func compareGolden(t *testing.T, name string, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the option table generates: go generate ./config", name)
	}
}

// tapReference is docs/FLAGS.md: every flag in all its spellings, the presets and the purposes.
func tapReference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for i := range tapOptions {
		o := &tapOptions[i]
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", cell(o.cli().Usage()), o.envs()[0], o.keyCell(),
			o.kind(),
			o.defaultCell(), cell(o.help))
	}
	b.WriteString(presetHead)
	for _, p := range presets {
		fmt.Fprintf(&b, "| `%s` | %v | %s | %g | %v |\n", p.Name, p.Granularity, p.Codec, p.Throughput, p.MemoryCeiling)
	}
	b.WriteString(purposeHead)
	for _, purpose := range purposes {
		for _, arch := range []string{"qwen3", "gemma3", "mamba"} {
			p, _ := suggest(arch, Purpose(purpose))
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %v |\n", purpose, arch, Family(arch), p.Name, p.Codec,
				p.MemoryCeiling)
		}
	}
	return b.String()
}

func (o *option) keyCell() string {
	if o.name == "config" {
		return ""
	}
	return "`" + o.key() + "`"
}

func (o *option) defaultCell() string {
	if o.byDef == "" {
		return ""
	}
	return "`" + o.byDef + "`"
}

// kind is the column of what an option starts or modifies.
func (o *option) kind() string {
	switch o.role {
	case roleRecorder:
		return "recorder: " + string(o.recorder)
	case roleModifier:
		return "modifier of " + string(o.recorder)
	}
	return "run"
}

// markdown is text with backticks where it has acute accents, since a raw string cannot hold a backtick.
func markdown(text string) string { return strings.ReplaceAll(text, "´", "`") }

// cell makes text safe in a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

var referenceHead = markdown(`# The --tap-… flags

Generated from the option table of package config: ´go generate ./config´. Do not edit.

Whatever records is spelt ´--tap-…´, with the same meaning on ´llamatap run´, on llama.cpp's own front ends and on
´llamatap exec´; as an environment variable; and in the YAML file of ´--tap-config´, below the key ´tap:´. A flag
beats the environment, the environment beats the file, the file beats the preset, the preset beats the default.
´metadata.json´ lists each value with its source.

- A recorder runs exactly when one of its own flags is given, and a run directory exists exactly when a recorder runs.
- ´--tap-out DIR´ or a modifier alone is an error that lists the recorders: capturing every tensor would be the
  costliest choice. One that only the environment or its file sets waits for a recorder. ´--tap-start off´ is none:
  the run captures what ´llamatap ctl´ asks for.
- ´--tap-kv=off´ and the like switch off what the environment or its file records. With nothing else the program runs
  as without a flag.
- ´--tap-attention´ as the only recorder flag captures what attention maps need, and nothing else.
- A selection that matches nothing of the model (granularity, layers, tensors, attention) ends with status 2 and the
  names that exist, before anything is computed.
- A flag given twice counts as last written. A value that begins with a dash is written ´--tap-name=value´.
- Sizes: K, M, G and T (also KiB, MiB …) are powers of 1024; KB, MB, GB and TB are powers of 1000.
- An environment variable that is empty counts as not set; a misspelt one, such as ´LLAMATAP_LAYR´, is an error.
  ´LLAMATAP_LAYERS´, ´LLAMATAP_TENSORS´ and ´LLAMATAP_TOKENS´ are former names of the variables without the S. In
  YAML, lists may be written as lists.
- An argument of the form ´--tap-name´ or ´--tap-name=value´ is the tap's wherever it stands, also where another
  program's flag expects its value; an unknown name is an error. Other arguments, such as a prompt ´--tap dance´, and
  ´-tap-name´ are the program's.
- Behind an argument ´--´ every argument belongs to the program: ´llamatap exec -- llama-cli -p --tap-name´.

| flag | environment | YAML key | kind | default | meaning |
|---|---|---|---|---|---|
`)

var presetHead = markdown(`
## Presets

Names and values are those of STRAP-LLM, except two codecs: on activations its lz4 and zstd stay below 2.1×, so
´balanced´ uses ´q´ and ´max_compression´ ´q-fse´, which reach 3× within a bounded error (´--tap-error´).
´--tap-codec lz4´ stores F16, which STRAP-LLM reads. The memory figure is a ceiling for ´--tap-memory´, not a
reservation; the rate is the one below which the summary of a run says what held the capture back.

| preset | granularity | codec | GB/s | memory ceiling |
|---|---|---|---|---|
`)

var purposeHead = markdown(`
## Purposes

´--tap-purpose´ picks a preset from the model's GGUF ´general.architecture´, normalised to a family. Three examples
of each:

| purpose | architecture | family | preset | codec | memory ceiling |
|---|---|---|---|---|---|
`)

// runReference is docs/RUN_FLAGS.md: every flag of llamatap run that llama.cpp has too, and where run
// differs from llama-completion.
func runReference() string {
	var b strings.Builder
	b.WriteString(runReferenceHead)
	var flags cli.Flags
	NewRun().Define(&flags)
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.section != "" {
			fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | default | meaning |\n|---|---|---|---|\n",
				strings.ToUpper(o.section[:1])+o.section[1:])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(spellings(flags.List[i])), code(o.env), code(o.byDef),
			cell(o.help))
	}
	return b.String()
}

// spellings are the names of a flag, each as code, and its value after the last.
func spellings(f *cli.Flag) string {
	var names []string
	for _, name := range slices.Concat(f.Names, f.Off) {
		names = append(names, code(name))
	}
	if f.Value != "" {
		names[len(names)-1] += " " + code(f.Value)
	}
	return strings.Join(names, ", ")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

var runReferenceHead = markdown(`# The flags of llamatap run

Generated from the option table of package config: ´go generate ./config´. Do not edit.

´llamatap run´ does what ´llama-completion -no-cnv --no-display-prompt´ of llama.cpp 0.7.0 does with the same flags:
names, environment variables and defaults are its own, and so is the text, byte for byte. What records stands in
[FLAGS.md](FLAGS.md). What it lacks (conversations, input while it runs, JSON schemas, …) llama.cpp's own program has
under the tap: ´llamatap llama-completion´.

Where it differs:

- The generated text goes to stdout and nothing else does; it never asks for input.
- ´--embeddings´ and what belongs to it are llama-embedding's, and so is the output, byte for byte; ´-np´ is not
  there, and scores of ´--pooling rank´ are never normalised, which llama-embedding leaves alone with
  ´--embd-normalize -1´ only.
- ´--prompts´ and what belongs to it are its own: [PROMPTS.md](PROMPTS.md).
- ´-n 0´ decodes the prompt; llama-completion does nothing then.
- What llama-completion ignores is an error here: unknown samplers, ´--dry-base´ below 1, prompts that are not UTF-8.
- Where a grammar and a bias leave no token, the run ends with an error; llama-completion aborts.
- A prompt cache is written under another name and renamed, so that it is never half a file. It is left as it was when a
  run is interrupted, or ends because of how the prompt ends.
- ´-r´, ´-l´, ´--dry-sequence-breaker´, ´--lora…´ and ´--control-vector…´ add up when they are given
  several times; of other flags the last one counts.
`)
