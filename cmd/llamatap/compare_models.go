package main

import (
	"errors"
	"io"
	"strconv"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/intervene"
)

// maxCompareText is the most bytes of text that are compared.
const maxCompareText = 64 << 20

// compareArguments are what compare-models was asked for.
type compareArguments struct {
	intervene.Comparison
	text string
	top  int
	form reportForm
}

func compareModelsCommand() *cli.Command {
	return &cli.Command{
		Name: "compare-models", Summary: "say what a quantisation changes, layer by layer and weight by weight",
		Min: 2, Max: 2, Needs: "no models to compare: give two, the reference first",
		Usage: "A.gguf B.gguf -f TEXT [--points LIST] [--weights] [--chunk N] [--chunks N]\n" +
			"    [--format text|json] [-o FILE]",
		Text: `Runs a text through two models of one architecture and vocabulary, A the reference, and compares what
they compute: KL divergence and perplexity as llama-perplexity has them, the error of named points in every layer, the
channels that have most of it, and the tokens after which the models differ most.

With --weights it also tries each weight of B by itself: A computes the text with this weight alone taken
from B, and the KL divergence says what the error of this weight does. That takes a run of the text for
each weight that differs.

  llamatap compare-models f16.gguf q4_k.gguf -f text.txt
  llamatap compare-models f16.gguf q4_k.gguf -f text.txt --weights --chunks 4 --chunk 128
  llamatap compare-models q8_0.gguf q4_0.gguf -f text.txt --points resid_post,mlp_act --json
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &compareArguments{top: 20}
			a.Chunk, a.Diverges = 512, 0.1
			f.Add("-f, --file FILE", &a.text, "the text")
			f.Add("--points LIST", listOf(&a.Points, config.ParsePoint),
				"points that are compared").Default = "attn_out_post,mlp_out_post,resid_post"
			f.Add("--weights", &a.Weights, "measure what each weight explains")
			f.Add("-c, --chunk N", &a.Chunk,
				"tokens that are computed at a time; those of the second half are compared")
			f.Add("--chunks N", &a.Chunks, "chunks of the text at most (default: all)").Default = ""
			f.Add("--diverges FRACTION", func(s string) (err error) {
				if a.Diverges, err = strconv.ParseFloat(s, 64); err != nil || !(a.Diverges > 0) {
					return errors.New("give a number above 0")
				}
				return nil
			}, "relative error of the residual stream from which a layer diverges").Default = "0.1"
			f.Add("--top N", &a.top, "weights of the text at most; 0: all")
			f.Add("-t, --threads N", &a.Threads, "threads (default: one per core)").Default = ""
			a.form.define(f, "text", "json")
			return func(args []string) error { return a.run(args) }
		},
	}
}

func (a *compareArguments) run(args []string) error {
	switch {
	case a.text == "":
		return cli.Wrongf("give a text with -f FILE")
	case a.Chunks < 0 || a.top < 0 || a.Threads < 0:
		return cli.Wrongf("--chunks, --top and --threads are numbers from 0")
	}
	if err := canWrite(a.form.file, "-o"); err != nil {
		return err
	}
	a.A, a.B = args[0], args[1]
	text, err := cli.ReadFile(a.text, maxCompareText)
	if err != nil {
		return err
	}
	a.Text = string(text)
	if len(a.Points) == 0 {
		for _, p := range []ggmlhooks.Point{ggmlhooks.PointAttnOutPost, ggmlhooks.PointMLPOutPost,
			ggmlhooks.PointResidPost} {
			a.Points = append(a.Points, ggmlhooks.PointRef{Point: p, Layer: ggmlhooks.NoLayer})
		}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	bar := present.NewProgress(progressTerminal(true), "comparing")
	a.Progress = bar.Of
	report, err := a.Run(ctx)
	bar.Done()
	if err != nil {
		return err
	}
	err = a.form.writeAs(report, forms{"text": func(out io.Writer) error { return report.WriteText(out, a.top) }})
	if err == nil && report.Partial {
		return exitStatus{130, errors.New("interrupted: the result is partial")}
	}
	return err
}
