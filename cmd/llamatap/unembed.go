package main

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/activations"
	"github.com/llamatap/llamatap/internal/cli"
)

func unembedCommand() *cli.Command {
	return &cli.Command{
		Name: "unembed", Max: 1,
		Summary: "compute the logits of hidden states by a model's final norm and output matrix",
		Usage:   "[-m MODEL.gguf] STATES.f32|- -o LOGITS.f32\n[-m MODEL.gguf] --rows TOKEN[,TOKEN] -o ROWS.f32",
		Text: `Reads hidden states, such as changed rows of the residual stream, and writes what the model would predict
from each: the logit lens, for states that need not be from a recording. Both files are rows of little-endian float32
without a header, as numpy.fromfile and tofile have them; a row of states is as wide as the model, a row of logits as
its vocabulary. --rows writes the rows of the output matrix that belong to tokens. docs/ANALYZE.md says which models
have a head that llamatap knows. llama.cpp is not needed.

  llamatap unembed -m model.gguf states.f32 -o logits.f32
  llamatap unembed -m model.gguf --rows 17,42 -o directions.f32
`,
		Define: func(f *cli.Flags) func([]string) error {
			var model, output string
			var tokens []int32
			f.Add("-m, --model FILE", &model, "GGUF file of the model (default: the embedded model)")
			f.Add("--rows TOKEN[,TOKEN]", listOf(&tokens, func(text string) (int32, error) {
				token, err := strconv.ParseInt(text, 10, 32)
				if err != nil {
					return 0, errors.New("give numbers of tokens, separated by commas")
				}
				return int32(token), nil
			}), "write the rows of the output matrix of these tokens")
			f.Add("-o, --output FILE", &output, "file to write; - is standard output").Default = "-"
			return func(args []string) error {
				switch {
				case (len(args) == 0) == (len(tokens) == 0):
					return cli.Wrongf("give a file of hidden states, - for standard input, or tokens with --rows")
				case (output == "" || output == "-") && term.IsTerminal(int(os.Stdout.Fd())):
					return cli.Wrongf("the output is binary and standard output is a terminal: give a file with -o " +
						"FILE.f32")
				case len(tokens) > 0:
					return writeTo(output, true,
						func(out io.Writer) error { return activations.OutputRows(model, tokens, out) })
				case args[0] == "-":
					return writeTo(output, true,
						func(out io.Writer) error { return activations.Unembed(model, os.Stdin, out) })
				}
				states, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer states.Close()
				return writeTo(output, true,
					func(out io.Writer) error { return activations.Unembed(model, states, out) })
			}
		},
	}
}
