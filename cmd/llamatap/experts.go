package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func expertsCommand() *cli.Command {
	return &cli.Command{
		Name: "experts", Max: 1,
		Summary: "show which experts of a mixture were chosen, and predict hit rates of --moe-cache-mib",
		Usage:   "[RUN] [--moe-cache-mib N,N…] [--by expert|size|slots] [--format text|json|csv|parquet] [-o FILE]",
		Text: `Reads the choices of experts that --tap-resource-level DETAILED recorded: which experts each layer used
most, after how many others one was used again, and how often a cache of experts in a GPU's memory would have held what
was used, for each size: a plain LRU cache, and the cache of llama.cpp 0.7.0. Sizes come from the model's GGUF file.
docs/EXPERTS.md defines each figure.

  llama-server -m model.gguf --tap-resource-level DETAILED
  llamatap experts
  llamatap experts RUN --moe-cache-mib 2000,4000,8000
  llamatap experts RUN --format csv --by expert
  llamatap experts RUN --format parquet -o routing.parquet      a row per token, layer and expert
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			o, top, by := resources.ExpertOptions{Ctx: -1}, 5, "expert"
			f.Add("--by expert|size|slots", choice(&by, resources.ExpertTables...), "table of a CSV file").Default = by
			form.define(f, "text", "json", "csv", "parquet")
			f.Add("--moe-cache-mib N,N…", parsed(&o.MiB, mebibytes),
				"sizes to predict, in MiB (default: sixteenths of all experts)")
			f.Add("--n-cpu-moe N", &o.Layers, "layers whose experts stay in host memory, the first N (default: all)")
			f.Add("--model FILE", &o.Model, "the model's GGUF file (default: the one that the run names)")
			f.Add("--ctx N", &o.Ctx, "context (default: the first that chose experts)")
			f.Add("--top N", &top, "experts to show of each layer").Default = "5"
			return func(args []string) error {
				path, err := resolveRun(args...)
				if err != nil {
					return err
				}
				if top < 0 || o.Layers < 0 {
					return cli.Wrongf("--top %d, --n-cpu-moe %d: use 0 or more", top, o.Layers)
				}
				ctx, stop := untilInterrupt()
				defer stop()
				if form.form == "parquet" {
					if form.file == "-" {
						return cli.Wrongf("--format parquet needs -o FILE")
					}
					return form.write(func(out io.Writer) error { return resources.WriteRouting(ctx, out, path) })
				}
				r, err := resources.OpenExperts(ctx, path, o)
				if err != nil {
					return err
				}
				if r.Another != "" {
					fmt.Fprintf(present.Err, "llamatap: %s is not the run's model: %s\n", r.Model, r.Another)
				}
				return form.writeAs(r, forms{
					"csv":  func(out io.Writer) error { return r.WriteCSV(out, by) },
					"text": func(out io.Writer) error { return r.WriteText(out, top) },
				})
			}
		},
	}
}

// mebibytes reads a list of sizes.
func mebibytes(list string) (all []int64, err error) {
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a size in MiB: use numbers from 1, as in 2000,4000", word)
		}
		all = append(all, n)
	}
	return all, nil
}
