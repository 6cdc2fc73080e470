package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	held "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/terminal"
)

const inspectHelp = `llamatap inspect: what a capture holds

usage: llamatap inspect [RUN|FILE.stream] [--layer N] [--tensor GLOB] [--stats [--by tensor|packet|token]] [--json]
       llamatap inspect DIR --attention --layer N --head H [--token I|A:B] [--json|--npy] [-o FILE]

Shows layers, tokens, shapes, bytes, ratio and losses, and what else the run recorded; of a run without tensors what is in it. With --layer or --tensor it lists tensors, with --stats their mean, population
standard deviation, minimum, maximum, L2 norm and share of exact zeros, all over finite values, and counts NaN and Inf.
DIR is a run directory. A stream outside of one is read with its index, or as STRAP-LLM writes it, without; then what had to be
assumed is said.

--attention shows the weights with which tokens attend to KV cells, of a run recorded with --tap-attention: recomputed from the captured
Q, K and mask where flash attention ran, else as llama.cpp computed them. --json writes one line per token with all weights, and the
token whose key lies in each cell; --npy a float32 array [tokens, cells].

  llamatap inspect llamatap-runs/MODEL/RUN
  llamatap inspect RUN --layer 3
  llamatap inspect RUN --stats --tensor 'l_out' --json
  llamatap inspect RUN --stats --by token --tensor l_out-0    one JSON line per tensor and token
  llamatap inspect RUN --attention --layer 3 --head 0

flags:
`

// inspectArgs are the arguments of 'llamatap inspect'.
type inspectArgs struct {
	path        string
	filter      tensors.Filter
	json, stats bool
	by          string
	attention   attentionArgs
}

// runInspect shows what a run directory or a stream holds.
func runInspect(args []string) error {
	var a inspectArgs
	flags := newFlags("inspect", inspectHelp)
	layer := flags.String("layer", "", "only layer `N`; none for what belongs to no layer")
	flags.StringVar(&a.filter.Tensor, "tensor", "", "only tensors that match `GLOB`, with or without layer suffix: l_out, ffn_*, Qcur-0#2")
	flags.BoolVar(&a.json, "json", false, "write JSON")
	flags.BoolVar(&a.stats, "stats", false, "read the tensors and show statistics")
	flags.StringVar(&a.by, "by", "tensor", "statistics by `WHAT`: tensor, packet or token; packet and token write JSON lines")
	flags.BoolVar(&a.attention.want, "attention", false, "show the attention of one head of one layer")
	flags.StringVar(&a.attention.head, "head", "", "with --attention: head `H`")
	flags.StringVar(&a.attention.token, "token", "", "with --attention: only token `I`, or A:B; default all")
	flags.StringVar(&a.attention.ctx, "ctx", "", "with --attention: context `N`; default 0")
	flags.BoolVar(&a.attention.npy, "npy", false, "with --attention: write a NumPy file")
	flags.StringVar(&a.attention.out, "o", "-", "with --attention: `FILE` to write; - is standard output")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	a.path, a.attention.json = path, a.json
	if a.filter.Layer, err = parseLayerFlag(*layer); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if err := a.check(); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	var mapOptions tensors.MapOptions
	if a.attention.want {
		if mapOptions, err = a.attention.options(a.filter.Layer); err != nil {
			return exitStatus{Code: 2, Err: err}
		}
	}
	run, err := tensors.Open(a.path)
	if errors.Is(err, tensors.ErrNotARun) && !a.attention.want && !a.stats && !a.narrowed() {
		return a.others(err)
	}
	if err != nil {
		return err
	}
	defer run.Close()
	if a.attention.want {
		return a.attention.write(run, mapOptions)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return a.show(ctx, run, terminal.Out)
}

func (a *inspectArgs) check() error {
	switch tensors.By(a.by) {
	case tensors.ByTensor:
		return a.filter.Check()
	case tensors.ByPacket, tensors.ByToken:
		if a.stats {
			return a.filter.Check()
		}
		return fmt.Errorf("--by %s says how statistics are taken: add --stats", a.by)
	}
	return fmt.Errorf("--by %q: use tensor, packet or token", a.by)
}

func (a *inspectArgs) show(ctx context.Context, run *tensors.Run, out io.Writer) error {
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	if by := tensors.By(a.by); by != tensors.ByTensor {
		lines := json.NewEncoder(buffered)
		lines.SetEscapeHTML(false)
		count := 0
		err := run.Measure(ctx, a.filter, by, func(m *tensors.Measure) error { count++; return lines.Encode(m) })
		if err == nil && count == 0 {
			err = run.Unknown(a.filter)
		}
		return err
	}
	summary, err := run.Summarize(a.filter)
	if err != nil {
		return err
	}
	if a.narrowed() && summary.Packets == 0 {
		return run.Unknown(a.filter)
	}
	if a.stats {
		if err := run.MeasureTensors(ctx, a.filter, summary); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return writeJSON(buffered, summary)
	case a.stats:
		return summary.WriteStats(buffered)
	case a.narrowed():
		return summary.WriteTensors(buffered)
	}
	if err := summary.WriteText(buffered); err != nil || run.Kind != tensors.KindRun {
		return err
	}
	all, err := held.Read(a.path)
	if err != nil || len(all.Data) < 2 {
		return nil // the tensors were shown
	}
	fmt.Fprintln(buffered, "\nalso recorded:")
	return all.WriteData(buffered, "tensors")
}

func (a *inspectArgs) narrowed() bool { return a.filter.Layer != nil || a.filter.Tensor != "" }

// others shows a run without tensors. notRun is what opening it as one with tensors said.
func (a *inspectArgs) others(notRun error) error {
	all, err := held.Read(a.path)
	switch {
	case err != nil:
		return notRun
	case a.json:
		return writeJSON(terminal.Out, all)
	}
	return all.WriteText(terminal.Out)
}

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// parseLayerFlag reads a layer number, or none; "" is no choice.
func parseLayerFlag(text string) (*int, error) {
	if text == "" {
		return nil, nil
	}
	layer, err := strconv.Atoi(text)
	switch {
	case text == "none":
		layer = ggmlhooks.NoLayer
	case err != nil || layer < 0:
		return nil, fmt.Errorf("--layer %q: give a layer number from 0, or none for what belongs to no layer", text)
	}
	return &layer, nil
}

// newFlags makes a flag set whose help is text followed by the flags.
func newFlags(name, text string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {
		fmt.Fprint(terminal.Out, text)
		printFlags(terminal.Out, flags)
	}
	return flags
}

// printFlags lists flags as the flag package does, with two dashes before names of several letters, as examples and
// documents write them.
func printFlags(out io.Writer, flags *flag.FlagSet) {
	flags.VisitAll(func(f *flag.Flag) {
		dashes := "--"
		if len(f.Name) == 1 {
			dashes = "-"
		}
		form, help := flag.UnquoteUsage(f)
		fmt.Fprintf(out, "  %s\n    \t%s", strings.TrimSpace(dashes+f.Name+" "+form), help)
		if plain := f.DefValue; plain != "" && plain != "0" && plain != "false" && plain != "0s" {
			fmt.Fprintf(out, " (default %s)", plain)
		}
		fmt.Fprintln(out)
	})
}

// parseFlags reads flags before, between and behind the arguments and returns those; it demands want of them. After
// --help it returns nil and no error.
func parseFlags(flags *flag.FlagSet, args []string, want int) ([]string, error) {
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil || len(rest) == want {
		return rest, err
	}
	err = fmt.Errorf("%d arguments where %d belong; 'llamatap %s --help' shows how", len(rest), want, flags.Name())
	if len(rest) == 0 {
		err = fmt.Errorf("no run directory: give one, as in 'llamatap %s llamatap-runs/MODEL/RUN'", flags.Name())
	}
	return nil, exitStatus{Code: 2, Err: err}
}

// parseAnyFlags does the same with any number of arguments.
func parseAnyFlags(flags *flag.FlagSet, args []string) ([]string, error) {
	usage := flags.Usage
	flags.Usage = func() {} // the flag package would show help on every error
	rest := []string{}      // not nil, which is what --help returns
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			usage()
			return nil, nil
		}
		if err != nil {
			return nil, exitStatus{Code: 2, Err: fmt.Errorf("%w; 'llamatap %s --help' lists the flags", config.ExplainUnknownFlag(flags, args, err), flags.Name())}
		}
		args = flags.Args()
		if len(args) == 0 {
			return rest, nil
		}
		rest, args = append(rest, args[0]), args[1:]
	}
}
