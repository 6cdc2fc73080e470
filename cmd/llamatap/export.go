package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/mrmtrace"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

const exportHelp = `llamatap export: captured tensors as files that other programs read

usage: llamatap export DIR|FILE.stream --to npy|safetensors|parquet|arrow|strap|dataset|mrm-trace [-o OUT] [what]

npy          a folder: a file per tensor, the first axis running over tokens, a file that says whose the rows are, and index.json
safetensors  one file, or several of --shard-mb, with the same
parquet      one file, one row per tensor and token: ctx, seq, pos, token_index, token_id, layer, name, shape, values …
arrow        the same as an Arrow file, to be mapped into memory
strap        OUT.stream and OUT_tokens.json as STRAP-LLM writes them, float16
dataset      a folder for datasets.load_dataset: one row per token, one column per tensor, shuffled over the whole capture
mrm-trace    a results folder of mrm-trace, which must be given with -o: the run's accesses to memory (--tap-ledger), not its tensors

Without -o the export goes to derived/ in the run directory. It appears there when it is whole; docs/EXPORT.md has examples.

  llamatap export RUN --to npy --tensor l_out --layer 0-3
  llamatap export RUN --to parquet --tensor 'l_out*,ffn_out*' --phase decode -o decode.parquet
  llamatap export RUN --to mrm-trace -o results
  llamatap export RUN --to dataset --tensor l_out-12 --shard-mb 256 --seed 1 -o sae

flags:
`

// exportArgs are the arguments of 'llamatap export'.
type exportArgs struct {
	path, to, codec                                  string
	layer, tensor, component, phase, token, seq, ctx string
	options                                          export.Options
}

// runExport writes captured tensors in another program's format.
func runExport(args []string) error {
	a := exportArgs{options: export.Options{Version: version, Command: append([]string{"llamatap", "export"}, args...)}}
	flags := newFlags("export", exportHelp)
	a.define(flags)
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	a.path = path
	if a.to == "mrm-trace" {
		return exportMRMTrace(flags, a.path, mrmtrace.Options{Out: a.options.Out, Force: a.options.Force})
	}
	if err := a.settle(); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	run, err := tensors.Open(a.path)
	if err != nil {
		return err
	}
	defer run.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bar := present.NewProgress(progressTerminal(true), "exporting")
	a.options.Progress = bar.Of
	result, err := export.Write(ctx, run, a.options)
	bar.Done()
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted: nothing was written")}
	}
	if err != nil {
		return err
	}
	return describeExport(terminal.Out, result)
}

// exportMRMTrace writes a run's accesses to memory into a results folder of mrm-trace.
func exportMRMTrace(flags *flag.FlagSet, dir string, o mrmtrace.Options) (err error) {
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "to" && f.Name != "o" && f.Name != "force" && err == nil {
			err = fmt.Errorf("--%s chooses tensors: --to mrm-trace exports all accesses to memory, leave it out", f.Name)
		}
	})
	if o.Out == "" && err == nil {
		err = errors.New("--to mrm-trace: say with -o which results folder the run goes into")
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := mrmtrace.Export(ctx, dir, o)
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted: nothing was written")}
	}
	if err != nil {
		return err
	}
	for _, note := range r.Notes {
		terminal.Printf("note: %s\n", note)
	}
	terminal.Printf("%s: %d accesses to pages\n", r.Path, r.Rows)
	return nil
}

func (a *exportArgs) define(flags *flag.FlagSet) {
	flags.StringVar(&a.to, "to", "", "`FORM` of the export (needed): npy, safetensors, parquet, arrow, strap, dataset or mrm-trace")
	flags.StringVar(&a.options.Out, "o", "", "file or folder `OUT` to write; default: in the run directory, below derived/")
	flags.BoolVar(&a.options.Force, "force", false, "replace what is there")
	flags.StringVar(&a.tensor, "tensor", "", "only tensors that match one of `GLOBS`, with or without layer suffix: l_out,ffn_*")
	flags.StringVar(&a.layer, "layer", "", "only `LAYERS`, such as 0-3,7; none is what belongs to no layer")
	flags.StringVar(&a.component, "component", "", "only `NAMES` of components, such as attention,mlp,residual")
	flags.StringVar(&a.token, "token", "", "only `TOKENS`: I or A:B (from A, before B; either side may be empty), several with commas")
	flags.StringVar(&a.phase, "phase", "", "only tokens of `PHASES`: prefill, decode")
	flags.StringVar(&a.seq, "seq", "", "only tokens of sequences `N`, several with commas")
	flags.StringVar(&a.ctx, "ctx", "", "only context `N`")
	flags.Int64Var(&a.options.ShardMB, "shard-mb", 0, "size of one file of safetensors (default 5000) or dataset (256), in `MB` before compression")
	flags.Uint64Var(&a.options.Seed, "seed", 0, "`N` that dataset is shuffled by")
	flags.BoolVar(&a.options.Complete, "complete", false, "dataset: leave out tokens that lack a chosen tensor, such as those without output in the last layer")
	flags.StringVar(&a.options.Results, "results", "", "dataset: `FILE` that 'llamatap run --prompts --results' wrote; its ids name the rows' prompts")
	flags.StringVar(&a.codec, "codec", "lz4", "`CODEC` of strap: none, lz4 or zstd")
}

// settle parses the flags that need it and checks the rest.
func (a *exportArgs) settle() (err error) {
	o := &a.options
	o.Form = export.Form(a.to)
	if err := o.Form.Check(); err != nil {
		return err
	}
	if o.ShardMB < 0 {
		return fmt.Errorf("--shard-mb %d: give a size in MB, from 1", o.ShardMB)
	}
	if o.Codec, err = codec.Parse(a.codec); err != nil || !slices.Contains(export.StrapCodecs, o.Codec) {
		return fmt.Errorf("--codec %q: STRAP-LLM reads none, lz4 and zstd", a.codec)
	}
	if o.Select, err = a.selection(); err != nil {
		return err
	}
	return o.Select.Check()
}

func (a *exportArgs) selection() (s export.Selection, err error) {
	var layers []string
	for _, text := range split(a.layer) {
		if text == "none" {
			s.NoLayer = true
		} else {
			layers = append(layers, text)
		}
	}
	if len(layers) > 0 {
		if s.Layers, err = ggmlhooks.ParseLayerSet(strings.Join(layers, ",")); err != nil {
			return s, fmt.Errorf("--layer: %w", err)
		}
	}
	s.Tensors = split(a.tensor)
	for _, text := range split(a.component) {
		component, err := label.ParseComponent(text)
		if err != nil {
			return s, fmt.Errorf("--component: %w", err)
		}
		s.Components = append(s.Components, component)
	}
	for _, text := range split(a.phase) {
		phase, err := label.ParsePhase(text)
		if err != nil {
			return s, fmt.Errorf("--phase: %w", err)
		}
		s.Phases = append(s.Phases, phase)
	}
	for _, text := range split(a.token) {
		first, end, err := parseTokens(text)
		if err != nil {
			return s, err
		}
		s.Tokens = append(s.Tokens, export.Tokens{First: first, End: end})
	}
	for _, text := range split(a.seq) {
		seq, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seq < 0 {
			return s, fmt.Errorf("--seq %q: give numbers of sequences, from 0", a.seq)
		}
		s.Seqs = append(s.Seqs, int32(seq))
	}
	s.Ctx, err = parseCtx(a.ctx)
	return s, err
}

// split cuts a list at its commas; none for "".
func split(list string) []string {
	if list == "" {
		return nil
	}
	parts := strings.Split(list, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return parts
}

// describeExport says what was written, and what the user should know of it.
func describeExport(out io.Writer, r *export.Result) error {
	for _, note := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	_, err := fmt.Fprintf(out, "%s: %d rows of %d tensors, %d files, %s\n", r.Path, r.Rows, r.Tensors, r.Files, present.Bytes(r.Bytes))
	return err
}
