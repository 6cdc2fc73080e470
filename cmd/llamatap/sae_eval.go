package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/autoencoder"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func saeEvalCommand() *cli.Command {
	return &cli.Command{
		Name: "eval", Summary: "how well a sparse autoencoder explains rows, and which tokens activate its features",
		Min: 1, Max: 10_000, Needs: "no folder: give that of an autoencoder",
		Usage: "DIR [RUN …] [--all] [--feature K] [--top N] [--contexts N] [--format text|json] [-o FILE]",
		Text: `Prints explained variance, active features per row and dead features on rows that training held out, of
the runs that it was trained on or of others, and the tokens that activate each feature most, with their neighbours.

  llamatap sae eval sae
  llamatap sae eval sae RUN --all --feature 17 --contexts 20
  llamatap sae eval sae --json | jq '.features[] | select(.density > 0.1).feature'
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			o := autoencoder.EvaluateOptions{Contexts: 5}
			top, feature := 20, -1
			f.Add("--all", &o.All, "all rows, those that were trained on too")
			f.Add("--feature K", &feature, "only this feature").Default = ""
			f.Add("--top N", &top, "text: features that are printed, those of most rows first")
			f.Add("--contexts N", &o.Contexts, "tokens that activate a feature most")
			form.define(f, "text", "json")
			return func(args []string) error {
				s, err := autoencoder.Open(args[0])
				if err != nil {
					return err
				}
				switch {
				case f.Given("--feature") && (feature < 0 || feature >= s.Features):
					return cli.Wrongf("--feature %d: give a number from 0 to %d", feature, s.Features-1)
				case top < 0 || o.Contexts < 0 || o.Contexts > 1000:
					return cli.Wrongf("--top %d, --contexts %d: give numbers from 0, and at most 1000 contexts", top,
						o.Contexts)
				}
				if err := canWrite(form.file, "-o"); err != nil {
					return err
				}
				e, err := evaluate(s, args[1:], o)
				if err != nil {
					return err
				}
				if feature >= 0 {
					e.Features, top = e.Features[feature:feature+1], 1
				}
				return form.writeAs(e, forms{"text": func(out io.Writer) error { return writeFeatures(out, e, top) }})
			}
		},
	}
}

// evaluate evaluates an autoencoder on runs, or on those that it was trained on.
func evaluate(s *autoencoder.SAE, runs []string, o autoencoder.EvaluateOptions) (*autoencoder.Evaluation, error) {
	paths := s.About.Sources
	if len(runs) > 0 || len(paths) == 0 {
		var err error
		if paths, err = runPaths(runs); err != nil {
			return nil, err
		}
	}
	rows, err := openRows(paths, &s.About)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ctx, stop := untilInterrupt()
	defer stop()
	bar := present.NewProgress(progressTerminal(true), "evaluating")
	defer bar.Done()
	total := s.About.Held
	if o.All {
		total += s.About.Rows
	}
	o.Progress = func(done int64) { bar.Of(min(done, total), total) }
	e, err := autoencoder.Evaluate(ctx, s, engine(), rows, o)
	if err == nil && o.Contexts > 0 {
		err = rows.AddTexts(e)
	}
	return e, err
}

// evaluated is the first line of an evaluation.
func evaluated(e *autoencoder.Evaluation) string {
	return fmt.Sprintf("explained variance %.4f, L0 %.1f, dead %d, on %s rows", e.ExplainedVariance, e.L0, e.Dead,
		present.Count(e.Rows))
}

// writeFeatures writes the features that are active in most rows, with their contexts.
func writeFeatures(out io.Writer, e *autoencoder.Evaluation, top int) error {
	t := &present.Text{W: out}
	t.Line("%s", evaluated(e))
	features := slices.Clone(e.Features)
	slices.SortStableFunc(features, func(a, b autoencoder.Feature) int { return cmp.Compare(b.Density, a.Density) })
	rows := [][]string{{" feature", " density", " mean", " max", " activation", "token and its neighbours"}}
	for _, f := range features[:min(top, len(features))] {
		row := []string{strconv.Itoa(f.Number), present.Percent(f.Density), present.Digits(f.Mean),
			present.Digits(float64(f.Max))}
		for _, c := range f.Contexts {
			text := present.Line(c.Before + "⟦" + c.Token + "⟧" + c.After)
			if c.Before+c.Token+c.After == "" {
				text = fmt.Sprintf("token %d of recording %d, which has no texts", c.TokenIndex, c.Source+1)
			}
			rows = append(rows, append(row, present.Digits(float64(c.Activation)), text))
			row = []string{"", "", "", ""}
		}
		if len(f.Contexts) == 0 {
			rows = append(rows, append(row, "", ""))
		}
	}
	if len(rows) > 1 {
		t.Columns(rows)
	}
	return t.Err
}

func saeSteerCommand() *cli.Command {
	return &cli.Command{
		Name: "steer", Summary: "write a feature as a control vector of llama.cpp", Min: 1, Max: 1,
		Needs: "no folder: give that of an autoencoder", Usage: "DIR --feature K -o FILE.gguf [--scale S]",
		Text: `Writes the direction of a feature, for the layer whose residual stream it was trained on. With
--control-vector, llamatap run, llama-cli and llama-server add it to each token. Its length is --scale: what a token
gains whose activation grows by that much.

  llamatap sae steer sae --feature 17 --scale 8 -o feature.gguf
  llamatap run -p "Once upon" --control-vector feature.gguf
`,
		Define: func(f *cli.Flags) func([]string) error {
			feature, scale, file := 0, 1.0, ""
			f.Add("--feature K", &feature, "number of the feature")
			f.Add("--scale S", &scale, "length of the direction")
			f.Add("-o, --output FILE", &file, "file to write; - is standard output")
			return func(args []string) error {
				s, err := autoencoder.Open(args[0])
				switch {
				case err != nil:
					return err
				case !f.Given("--feature") || feature < 0 || feature >= s.Features:
					return cli.Wrongf("give --feature with a number from 0 to %d", s.Features-1)
				case file == "":
					return cli.Wrongf("name the file with -o FILE.gguf")
				}
				layer, err := steeredLayer(&s.About)
				if err != nil {
					return err
				}
				row := slices.Clone(s.Direction(feature))
				for i := range row {
					row[i] *= float32(scale)
				}
				v := &gguf.ControlVector{Model: s.About.ModelArch, Layers: layer + 1,
					Directions: map[int][]float32{layer: row}}
				if norm := v.Norm(layer); !(norm > 0) || math.IsInf(norm, 0) {
					return cli.Wrongf("--scale %v gives a direction of length %v: give a finite number other than 0, "+
						"such as 8", scale, norm)
				}
				if err := writeTo(file, true, v.Write); err != nil || file == "-" {
					return err
				}
				present.Printf("%s: feature %d, of length %s, for layer %d; apply it with --control-vector %[1]s\n",
					file, feature, present.Digits(scale), layer)
				return nil
			}
		},
	}
}

// steeredLayer is the layer after which llama.cpp adds a direction of what an autoencoder was trained on.
func steeredLayer(about *autoencoder.About) (int, error) {
	tensor, layer := ggmlhooks.WithoutLayer(about.Tensor), -1
	if about.Layer != nil {
		layer = *about.Layer
	} else if _, number, ok := strings.Cut(about.Tensor, "-"); ok {
		layer, _ = strconv.Atoi(number)
	}
	if about.Point == ggmlhooks.PointResidPre.String() {
		layer-- // what a layer reads is what the one before it wrote
	} else if about.Point != ggmlhooks.PointResidPost.String() && tensor != "l_out" {
		return 0, fmt.Errorf("the autoencoder was trained on %s, and control vectors add to the residual stream: "+
			"train one on resid_post", cmp.Or(about.Point, about.Tensor, "an unknown tensor"))
	}
	if layer < 1 {
		return 0, fmt.Errorf("llama.cpp steers after layers from 1 on, and the autoencoder is of layer %d: train one "+
			"on a later layer", layer)
	}
	return layer, nil
}
