package main

import (
	"io"
	"strings"

	"github.com/llamatap/llamatap/inspect/activations"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func analyzeCommand() *cli.Command {
	return &cli.Command{
		Name: "analyze", Summary: "analyse captured hidden states: norms, outliers, similarity of layers, rank", Max: 1,
		Usage: "[RUN|FILE.stream] [--layer N] [--tensor GLOB] [--token I|A:B] [--by TABLE]\n" +
			"    [--format text|json|csv|md] [-o FILE] [--plot FILE]",
		Text: `Reads captured tensors, by default the residual stream (l_out), and computes, for each layer and token,
L2 norm, mean, standard deviation, minimum, maximum and sparsity; outlier channels and massive activations; the cosine
between consecutive layers; effective rank and principal components; correlations of norms between layers; and, of
runs with --tap-attention, attention sinks. The logit lens reads the last tokens through the model's final norm and
output head, from the GGUF file that the run names or --model.
docs/ANALYZE.md defines each figure. Values belong to tokens as the run's index states.

--by picks one table: tensor (the default of csv), layer, token, channel, massive, sink, correlation, lens. JSON
has all of them, with the keys of STRAP-LLM's analysis.

  llamatap run -p Hello -n 32 --tap-tensor l_out
  llamatap analyze
  llamatap analyze RUN --tensor 'ffn_out' --format md -o ffn.md
  llamatap analyze RUN --by token --format csv -o tokens.csv
  llamatap analyze RUN --plot analysis.png
  llamatap analyze RUN --json | jq .correlations
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			var by string
			o := activations.Options{Metric: activations.Metrics[0], MinCorrelation: 0.6, Top: 8, Lens: 4}
			defineLayer(f, &o.Filter.Layer)
			f.Add("--tensor GLOB", &o.Filter.Tensor, tensorHelp).Default = activations.ResidualStream
			f.Add("--token I|A:B", func(s string) (err error) { o.First, o.End, err = parseTokens(s); return err },
				"only this token, or from A to before B; either may be empty (default: all)")
			f.Add("--ctx N", parsed(&o.Filter.Ctx, parseContext), "only this context (default: all)")
			f.Add("--by TABLE", choice(&by, activations.Names...),
				"only this table: "+strings.Join(activations.Names, ", "))
			f.Add("--metric NAME", choice(&o.Metric, activations.Metrics...),
				"what is correlated: "+strings.Join(activations.Metrics, ", ")).Default = o.Metric
			f.Add("--min-correlation R", parsed(&o.MinCorrelation, parseFraction),
				"leave out pairs of a smaller |r|").Default = "0.6"
			f.Add("--top N", &o.Top, "pairs that are kept; 0: all")
			f.Add("--lens N", &o.Lens, "tokens that the logit lens reads, the last chosen ones; 0: none")
			f.Add("-m, --model FILE", &o.Model, "GGUF file of the logit lens (default: the one that the run names)")
			var plot plotFile
			plot.define(f)
			form.define(f, "text", "json", "csv", "md")
			return func(args []string) error {
				path, err := resolveRun(args...)
				switch {
				case err != nil:
					return err
				case o.Filter.Check() != nil:
					return cli.Wrong(o.Filter.Check())
				case o.Top < 0:
					return cli.Wrongf("--top %d: give a number of pairs, or 0 for all", o.Top)
				case o.Lens < 0 || o.Lens > activations.MaxLensTokens:
					return cli.Wrongf("--lens %d: give a number of tokens from 0 to %d", o.Lens,
						activations.MaxLensTokens)
				case by == "lens" && o.Lens == 0:
					return cli.Wrongf("--by lens: --lens 0 leaves it out; give a number of tokens from 1 to %d",
						activations.MaxLensTokens)
				case form.form == "json" && by != "":
					return cli.Wrongf("--by %s: JSON has all tables; add --format csv, md or text", by)
				case form.form == "csv" && by == "":
					by = activations.Names[0]
				}
				run, err := tensors.Open(path)
				if err != nil {
					return err
				}
				defer run.Close()
				ctx, stop := untilInterrupt()
				defer stop()
				bar := present.NewProgress(progressTerminal(true), "analysing")
				o.Progress = bar.Of
				analysis, err := activations.Analyze(ctx, run, o)
				bar.Done()
				if err != nil {
					return err
				}
				err = form.writeAs(analysis, forms{
					"csv":  func(out io.Writer) error { return analysis.WriteCSV(out, by) },
					"md":   func(out io.Writer) error { return analysis.WriteMarkdown(out, by) },
					"text": func(out io.Writer) error { return analysis.WriteText(out, by) },
				})
				if plot == "" || err != nil {
					return err
				}
				return plot.saveRun(analysis.Picture(), path)
			}
		},
	}
}
