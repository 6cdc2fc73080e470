package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// exportArgs are the arguments of 'llamatap export'.
type exportArgs struct {
	flags   *cli.Flags
	to      string
	maxSize config.Bytes // of a timeline; 0: by its tokens
	options export.Options
	points  []ggmlhooks.PointRef
}

func exportCommand() *cli.Command {
	return &cli.Command{
		Name: "export",
		Summary: "write tensors for NumPy, PyTorch, pandas or DuckDB, timelines for Perfetto or pprof, traces of " +
			"requests",
		Max:   1,
		Usage: "[RUN|FILE.stream] --to FORMAT [-o OUT] [what]",
		Text: `Captured tensors:

  npy          a folder: a file per tensor, the first axis running over tokens, a file with row metadata, and index.json
  safetensors  one file, or several of --shard-mb, with the same
  parquet      one file, one row per tensor and token: ctx, seq, pos, token_index, token_id, layer, name, shape, values …
  arrow        the same as an Arrow file, to be mapped into memory
  strap        NAME.stream (-o) and NAME_tokens.json as STRAP-LLM writes them, float16
  dataset      a folder for datasets.load_dataset: one row per token, one column per tensor, shuffled over the whole capture

Resource events (--tap-resource-level), without -o to a file in the current folder:

  perfetto     tokens, graphs, layers, components, ops, counters and page faults over time, for ui.perfetto.dev
  chrome       the same for chrome://tracing
  speedscope   graphs, layers, components and ops, for speedscope.app
  pprof        time, FLOPs and bytes by phase, layer, component and op, for go tool pprof

Accesses to memory (--tap-ledger):

  mrm-trace    a results folder of mrm-trace, which -o must name

Requests of a server (--tap-requests), without -o to a file in the current folder:

  mooncake     a trace: arrival, lengths and shared prefixes of each request, for 'llamatap bench --trace'

Without -o an export of tensors goes to derived/ in the run directory. It appears there when it is complete;
docs/EXPORT.md has examples.

  llamatap export RUN --to npy --tensor l_out --layer 0-3
  llamatap export RUN --to parquet --tensor 'l_out*,ffn_out*' --phase decode -o decode.parquet
  llamatap export RUN --to perfetto -o run.pftrace
  llamatap export RUN --to mrm-trace -o results
  llamatap export RUN --to dataset --tensor l_out-12 --shard-mb 256 --seed 1 -o sae
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &exportArgs{flags: f}
			a.define(f)
			return a.run
		},
	}
}

func (a *exportArgs) define(f *cli.Flags) {
	o := &a.options
	s := &o.Select
	o.Codec, _ = codec.Parse("lz4")
	f.Add("--to FORMAT", &a.to, "format of the export (needed)")
	f.Add("-o, --output OUT", &o.Out, "file or folder to write (default: in the run directory, below derived/)")
	f.Add("--force", &o.Force, "replace what is there")
	f.Add("--tensor GLOB[,GLOB]", wordList(&s.Tensors),
		"only tensors that match one of these, with or without layer suffix: l_out,ffn_*").Deprecated("--tensors")
	definePoint(f, &a.points)
	f.Add("--layer LIST", a.selectLayers, "only these layers, such as 0-3,7; none is what belongs to no layer").
		Deprecated("--layers")
	f.Add("--component LIST", listOf(&s.Components, label.ParseComponent),
		"only these components, such as attention,mlp,residual")
	f.Add("--token LIST", listOf(&s.Tokens, func(text string) (t export.Tokens, err error) {
		t.First, t.End, err = parseTokens(text)
		return t, err
	}), "only these tokens: I or A:B (from A, before B; either may be empty), several with commas").
		Deprecated("--tokens")
	f.Add("--phase LIST", listOf(&s.Phases, label.ParsePhase), "only tokens of these phases: prefill, decode")
	f.Add("--seq LIST", listOf(&s.Seqs, func(text string) (int32, error) {
		seq, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seq < 0 {
			return 0, errors.New("give numbers of sequences, from 0")
		}
		return int32(seq), nil
	}), "only tokens of these sequences")
	f.Add("--ctx N", parsed(&s.Ctx, parseContext), "only this context")
	f.Add("--shard-mb MB", &o.ShardMB,
		"size of one file of safetensors (default 5000) or dataset (256), before compression")
	f.Add("--max-size SIZE", parsed(&a.maxSize, config.ParseBytes),
		"perfetto, chrome, speedscope: leave ops out where the file would be larger (default 10M for 1,000 tokens)")
	f.Add("--seed N", &o.Seed, "dataset: seed of the shuffle")
	f.Add("--shuffle-window TOKENS", &o.Window,
		"dataset: shuffle so many tokens at a time, as 'run --tap-dataset' does (default: all)")
	f.Add("--complete", &o.Complete,
		"dataset: leave out tokens that lack a chosen tensor, such as those without output in the last layer")
	f.Add("--results FILE", &o.Results,
		"dataset: the file that 'llamatap run --prompts --results' wrote; its ids name the rows' prompts")
	f.Add("--codec none|lz4|zstd", func(text string) (err error) {
		if o.Codec, err = codec.Parse(text); err != nil || !slices.Contains(export.StrapCodecs, o.Codec) {
			return errors.New("STRAP-LLM reads none, lz4 and zstd")
		}
		return nil
	}, "strap: the codec").Default = "lz4"
}

func (a *exportArgs) selectLayers(list string) (err error) {
	var layers []string
	s := &a.options.Select
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "none" {
			s.NoLayer = true
		} else {
			layers = append(layers, text)
		}
	}
	if len(layers) > 0 {
		s.Layers, err = ggmlhooks.ParseLayerSet(strings.Join(layers, ","))
	}
	return err
}

// run writes captured tensors in another program's format.
func (a *exportArgs) run(args []string) error {
	path, err := resolveRun(args...)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	if a.options.Out == "-" {
		return cli.Wrongf("-o -: an export is written to files: name one, or a folder")
	}
	if a.to == "mrm-trace" {
		return a.exportMRMTrace(ctx, path)
	}
	if a.to == "mooncake" {
		return a.exportMooncake(ctx, path)
	}
	if suffix, ok := export.TimelineSuffix(a.to); ok {
		return a.exportTimeline(ctx, path, suffix)
	}
	if !slices.Contains(export.Forms, export.Form(a.to)) {
		return cli.Wrongf("--to %q: use one of %s", a.to, strings.Join(exportFormats(), ", "))
	}
	o := &a.options
	o.Version, o.Command, o.Form = version, append([]string{"llamatap", "export"}, a.flags.Raw...), export.Form(a.to)
	err = o.Form.Check()
	if err == nil && o.ShardMB < 0 {
		err = fmt.Errorf("--shard-mb %d: give a size in MB, from 1", o.ShardMB)
	}
	if err == nil && o.Window < 0 {
		err = fmt.Errorf("--shuffle-window %d: give a number of tokens, from 1", o.Window)
	}
	if err == nil {
		err = o.Select.Check()
	}
	if err != nil {
		return cli.Wrong(err)
	}
	run, err := tensors.Open(path)
	if err != nil {
		return err
	}
	defer run.Close()
	var notes []string
	if len(a.points) > 0 {
		s := &o.Select
		var globs []string
		globs, notes, err = run.PointGlobs(a.points, func(layer int) bool {
			return s.Layers.Empty() && !s.NoLayer || s.Layers.Has(layer) || s.NoLayer && layer == ggmlhooks.NoLayer
		})
		if err != nil {
			return err
		}
		s.Tensors, s.Layers, s.NoLayer = append(s.Tensors, globs...), ggmlhooks.LayerSet{}, false
	}
	bar := present.NewProgress(progressTerminal(true), "exporting")
	o.Progress = bar.Of
	r, err := export.Write(ctx, run, *o)
	bar.Done()
	if err != nil {
		return err
	}
	for _, note := range append(notes, r.Notes...) {
		present.Printf("note: %s\n", note)
	}
	_, err = present.Printf("%s: %s of %s, %s, %s\n", r.Path, present.Plural(r.Rows, "row"),
		present.Plural(r.Tensors, "tensor"), present.Plural(r.Files, "file"),
		present.Bytes(r.Bytes))
	return err
}

// exportFormats lists what --to takes.
func exportFormats() (names []string) {
	for _, form := range export.Forms {
		names = append(names, string(form))
	}
	for _, f := range export.TimelineFormats {
		names = append(names, f.Name)
	}
	return append(names, "mrm-trace", "mooncake")
}

// exportMRMTrace writes a run's accesses to memory into a results folder of mrm-trace.
func (a *exportArgs) exportMRMTrace(ctx context.Context, dir string) error {
	if err := a.onlyFlags("all accesses to memory", "--to", "--output", "--force"); err != nil {
		return err
	}
	if a.options.Out == "" {
		return cli.Wrongf("--to mrm-trace: name the results folder that the run goes into with -o")
	}
	r, err := export.MRMTrace(ctx, dir, a.options.Out, a.options.Force)
	if err != nil {
		return err
	}
	for _, note := range r.Notes {
		present.Printf("note: %s\n", note)
	}
	_, err = present.Printf("%s: accesses to pages: %d\n", r.Path, r.Rows)
	return err
}
