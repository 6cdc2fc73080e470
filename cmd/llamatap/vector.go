package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/activations"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func vectorCommand() *cli.Command {
	return &cli.Command{
		Name: "vector", Summary: "make a control vector of two runs, or print one", Min: 1, Max: 2,
		Usage: "WITH WITHOUT -o FILE.gguf [--method mean|pca] [--all-tokens] [--raw]\nFILE.gguf [--format text|json]",
		Text: `Makes a control vector, the direction of the residual stream that leads from prompts without a property
to prompts with it, for each layer from 1 on. WITH and WITHOUT are runs of one model that captured l_out, of prompts
with the property and of prompts without it. By default the last token of each prompt counts. The file has llama.cpp's
format: --control-vector of llamatap run, llama-cli and llama-server applies it.

  mean  the mean of the rows of WITH less the mean of those of WITHOUT
  pca   the first principal component of the differences of pairs: as many prompts in both, in one order

Directions have length 1, unless --raw keeps the length of the difference. With one file, its layers are printed.

  llamatap run --prompts happy.jsonl -n 1 --tap-tensor l_out --tap-out happy
  llamatap run --prompts sad.jsonl -n 1 --tap-tensor l_out --tap-out sad
  llamatap vector happy/*/run_* sad/*/run_* --raw -o happy.gguf
  llamatap vector happy.gguf
  llamatap run -p "Today I feel" --control-vector-scaled happy.gguf:1.5
`,
		Define: func(f *cli.Flags) func([]string) error {
			form := reportForm{}
			o := activations.DirectionOptions{Method: activations.MeanDifference}
			f.Add("--method NAME", choice(&o.Method, activations.Methods...), "how directions are made: mean, pca").
				Default = o.Method
			f.Add("--all-tokens", &o.All, "all tokens of each prompt instead of the last one")
			f.Add("--raw", &o.Raw, "keep the length of the mean difference")
			form.define(f, "text", "json")
			return func(args []string) error {
				switch {
				case len(args) == 1 && isFolder(args[0]):
					return cli.Wrongf("a vector is made of two runs, and %s is one: name the run WITHOUT after it",
						args[0])
				case len(args) == 1:
					return printVector(args[0], &form)
				case form.file == "-" || f.Given("--format"):
					return cli.Wrongf("two runs make a GGUF file: name it with -o, without --format")
				}
				v, err := makeVector([2]string(args), o)
				if err != nil {
					return err
				}
				if err := writeTo(form.file, true, v.Write); err != nil {
					return err
				}
				present.Printf("%s: %s of %d values; apply it with --control-vector %[1]s\n", form.file,
					present.Plural(len(v.Directions), "layer"), v.Width())
				return nil
			}
		},
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// makeVector makes a control vector of two runs.
func makeVector(paths [2]string, o activations.DirectionOptions) (*gguf.ControlVector, error) {
	var runs [2]*tensors.Run
	var models [2]*tensors.Summary
	for i, path := range paths {
		path, err := resolveRun(path)
		if err != nil {
			return nil, err
		}
		if runs[i], err = tensors.Open(path); err != nil {
			return nil, err
		}
		defer runs[i].Close()
		if models[i], err = tensors.Summarize(runs[i], tensors.Filter{}); err != nil {
			return nil, err
		}
	}
	if a, b := models[0].Model, models[1].Model; a != b {
		return nil, fmt.Errorf("the runs are of %q and of %q: record both with one model", a, b)
	}
	ctx, stop := untilInterrupt()
	defer stop()
	v, err := activations.Directions(ctx, runs[0], runs[1], o)
	if err != nil {
		return nil, err
	}
	v.Model = models[0].Arch
	return v, nil
}

// printVector prints the layers of a control vector.
func printVector(path string, form *reportForm) error {
	v, err := gguf.OpenControlVector(path)
	if err != nil {
		return err
	}
	value := map[string]any{"model_hint": v.Model, "layer_count": v.Layers, "width": v.Width(),
		"directions": v.Directions}
	return form.writeAs(value, forms{"text": func(out io.Writer) error {
		rows := [][]string{{"layer", " values", " norm"}}
		for _, layer := range slices.Sorted(maps.Keys(v.Directions)) {
			rows = append(rows, []string{strconv.Itoa(layer), strconv.Itoa(v.Width()), present.Digits(v.Norm(layer))})
		}
		t := &present.Text{W: out}
		t.Line("control vector of %s, directions of %s", v.Model, present.Plural(len(rows)-1, "layer"))
		t.Columns(rows)
		return t.Err
	}})
}
