package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
)

func catCommand() *cli.Command {
	return &cli.Command{
		Name: "cat", Summary: "write one captured tensor as text, npy or JSON", Max: 1,
		Usage: "[RUN|FILE.stream] --tensor NAME [--layer N] [--token I|A:B] [--format text|npy|json] [-o FILE]",
		Text: `The array's first axis runs over tokens (over executions, for a tensor whose rows are not tokens); the
other axes are in C order, the reverse of ggml's. A stream without index has no shapes: packets of several lengths are
shown as rows of their greatest common divisor. text shows shape and corner values, npy is a NumPy file with the
elements as stored, json has all values.

  llamatap cat RUN --tensor l_out --layer 3
  llamatap cat RUN --tensor l_out-3 --token 0:8 --format npy -o l_out-3.npy
  llamatap cat RUN --tensor result_output --token 12 --format json
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			var o tensors.SliceOptions
			f.Add("--tensor NAME", &o.Tensor,
				"the tensor (needed), with or without layer suffix: l_out-3, Qcur-0#2, result_output").
				Deprecated("--tensors")
			defineLayer(f, &o.Layer)
			f.Add("--token I|A:B", func(s string) (err error) { o.First, o.End, err = parseTokens(s); return err },
				"only this token, or from A to before B; either may be empty (default: all)").Deprecated("--tokens")
			f.Add("--ctx N", parsed(&o.Ctx, parseContext), "the context, where several have the tensor")
			form.define(f, "text", "npy", "json")
			return func(args []string) error {
				path, err := resolveRun(args...)
				switch {
				case err != nil:
					return err
				case o.Tensor == "":
					return cli.Wrongf(
						"no tensor: give its name with --tensor; 'llamatap inspect %s --tensor \"*\"' lists them", path)
				case form.form == "npy" && form.file == "-" && term.IsTerminal(int(os.Stdout.Fd())):
					return cli.Wrongf("npy is binary and standard output is a terminal: give a file with -o FILE.npy")
				}
				debug.SetMemoryLimit(catMemory)
				run, err := tensors.Open(path)
				if err != nil {
					return err
				}
				defer run.Close()
				slice, err := tensors.NewSlice(run, o)
				if err != nil {
					return err
				}
				return form.writeAs(nil, forms{"text": slice.WriteText, "npy": slice.WriteNPY, "json": slice.WriteJSON})
			}
		},
	}
}

// catMemory is what cat's Go heap takes before its garbage is collected at once. A slice of millions of packets lives
// long enough that it would otherwise take twice its size.
const catMemory = 320 << 20

// parseTokens reads I or A:B; End 0 means all, -1 no end.
func parseTokens(text string) (first, end int64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	wrong := fmt.Errorf("token %q: give a token index from 0, or A:B with B above A (B itself is left out)", text)
	from, to, isRange := strings.Cut(text, ":")
	if first, err = strconv.ParseInt(from, 10, 64); err != nil && (from != "" || !isRange) || first < 0 {
		return 0, 0, wrong
	}
	switch {
	case !isRange:
		return first, first + 1, nil
	case to == "":
		return first, -1, nil
	}
	if end, err = strconv.ParseInt(to, 10, 64); err != nil || end <= first {
		return 0, 0, wrong
	}
	return first, end, nil
}
