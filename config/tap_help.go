package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// tapGroups are the headings of help, by role.
var tapGroups = map[role]string{
	roleRecorder: "What is recorded (each of these starts a recorder, and a run directory is made)",
	roleModifier: "How it is recorded (these record nothing by themselves)",
	roleRun:      "The run as a whole, and the settings themselves",
}

// usualTap are the settings that the help of run and exec lists; --help-all lists the others, too.
var usualTap = []string{
	"preset", "layers", "tensors", "attention", "resource-level", "kv", "ledger", "host", "tokens", "codec", "out",
	"resume",
}

// DefineTap adds every --tap-… flag, for help and completion: [SplitTapArgs] and [Tap.Parse] read them.
func DefineTap(f *cli.Flags) {
	for _, role := range []role{roleRecorder, roleModifier, roleRun} {
		for i := range tapOptions {
			if o := &tapOptions[i]; o.role == role {
				flag := o.cli()
				flag.Group, flag.More = tapGroups[role], !slices.Contains(usualTap, o.name)
				f.List = append(f.List, flag)
			}
		}
	}
}

// WriteTapReference writes docs/FLAGS.md: every flag in all its spellings, the presets and the purposes.
func WriteTapReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(referenceHead)
	for i := range tapOptions {
		o := &tapOptions[i]
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", cell(o.cli().Usage()), o.env(), o.keyCell(), o.kind(),
			o.defaultCell(), cell(o.help))
	}
	b.WriteString(presetHead)
	for _, p := range presets {
		fmt.Fprintf(&b, "| `%s` | %v | %s | %g | %v |\n", p.Name, p.Granularity, p.Codec, p.Throughput, p.MemoryCeiling)
	}
	b.WriteString(purposeHead)
	for _, purpose := range purposes {
		for _, arch := range []string{"qwen3", "gemma3", "mamba"} {
			p, _ := Suggest(arch, Purpose(purpose))
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %v |\n", purpose, arch, Family(arch), p.Name, p.Codec,
				p.MemoryCeiling)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
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

// cell makes text safe in a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const referenceHead = `# The --tap-… flags

Generated from the option table of package config: ` + "`go generate ./config`" + `. Do not edit.

Whatever records is spelt ` + "`--tap-…`" + `, with the same meaning on ` + "`llamatap run`" + `, on llama.cpp's own front ends and on ` + "`llamatap exec`" + `; as
an environment variable; and in the YAML file of ` + "`--tap-config`" + `, below the key ` + "`tap:`" + `. A flag beats the environment, the environment
beats the file, the file beats the preset, the preset beats the default. ` + "`metadata.json`" + ` lists each value with its source.

- A recorder runs exactly when one of its own flags is given, and a run directory exists exactly when a recorder runs.
- ` + "`--tap-out DIR`" + ` or a modifier alone is an error that lists the recorders: capturing every tensor would be the costliest
  choice. One that only the environment or its file sets waits for a recorder. ` + "`--tap-start off`" + ` is none: the run captures
  what ` + "`llamatap ctl`" + ` asks for.
- ` + "`--tap-attention`" + ` as the only recorder flag captures what attention maps need, and nothing else.
- A selection that matches nothing of the model (granularity, layers, tensors, attention) ends with status 2 and the names that
  exist, before anything is computed.
- A flag given twice counts as last written. A value that begins with a dash is written ` + "`--tap-name=value`" + `.
- Sizes: K, M, G and T (also KiB, MiB …) are powers of 1024; KB, MB, GB and TB are powers of 1000.
- An environment variable that is empty counts as not set; a misspelt one, such as ` + "`LLAMATAP_LAYR`" + `, is an error. ` + "`LLAMATAP_LAYERS`" + `,
  ` + "`LLAMATAP_TENSORS`" + ` and ` + "`LLAMATAP_TOKENS`" + ` are former names of the variables without the S. In YAML, lists may be
  written as lists.
- An argument of the form ` + "`--tap-name`" + ` or ` + "`--tap-name=value`" + ` is the tap's wherever it stands, also where another program's flag
  expects its value; an unknown name is an error. Other arguments, such as a prompt ` + "`--tap dance`" + `, and ` + "`-tap-name`" + ` are the program's.
- Behind an argument ` + "`--`" + ` every argument belongs to the program: ` + "`llamatap exec -- llama-cli -p --tap-name`" + `.

| flag | environment | YAML key | kind | default | meaning |
|---|---|---|---|---|---|
`

const presetHead = `
## Presets

Names and values are those of STRAP-LLM, except two codecs: on activations its lz4 and zstd stay below 2.1×, so ` + "`balanced`" + `
uses ` + "`q`" + ` and ` + "`max_compression`" + ` ` + "`q-fse`" + `, which reach 3× within a bounded error (` + "`--tap-error`" + `). ` + "`--tap-codec lz4`" + ` stores F16,
which STRAP-LLM reads. The memory figure is a ceiling for ` + "`--tap-memory`" + `, not a reservation; the rate is the one below
which the summary of a run says what held the capture back.

| preset | granularity | codec | GB/s | memory ceiling |
|---|---|---|---|---|
`

const purposeHead = `
## Purposes

` + "`--tap-purpose`" + ` picks a preset from the model's GGUF ` + "`general.architecture`" + `, normalised to a family. Three examples of each:

| purpose | architecture | family | preset | codec | memory ceiling |
|---|---|---|---|---|---|
`
