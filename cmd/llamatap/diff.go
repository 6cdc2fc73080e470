package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/internal/terminal"
	"golang.org/x/term"
)

const diffHelp = `llamatap diff: how the tensors of two captures differ

usage: llamatap diff A B [--layer N] [--tensor GLOB] [--by layer|tensor|token|row] [--json] [--fail-if BOUND[,BOUND]]

A and B are run directories or streams of the same prompts: of two quantisations, two builds of llama.cpp, two codecs. A row of A is compared with
that of B that is of the same node (name, op, occurrence in the graph), context, sequence, request, position and token; what has no counterpart is
counted, and two nodes or shapes that only share a name are refused by name. Each line shows, over its
rows: mean and lowest cosine, the largest difference, the root mean square of the differences, the same over that of A's values, and how many
pairs were left out because one value is NaN or infinite. --json writes one object, with --by row one line per tensor and token.

  llamatap diff RUN_F16 RUN_Q4
  llamatap diff RUN_F16 RUN_Q4 --by layer --tensor l_out
  llamatap diff RUN_F16 RUN_Q4 --by token --tensor result_output --json
  llamatap diff OLD NEW --fail-if 'cosine<0.999,max>0.1'     exit status 1 where it is so

flags:
`

// diffArgs are the arguments of 'llamatap diff'.
type diffArgs struct {
	filter tensors.Filter
	by     tensors.DiffBy
	json   bool
	bounds []diffBound
}

// diffBound is one bound of --fail-if.
type diffBound struct {
	text, figure string
	below        bool
	limit        float64
}

// diffFigures are what bounds can be set for.
var diffFigures = map[string]func(*tensors.Distance) float64{
	"cosine":     func(d *tensors.Distance) float64 { return d.Cosine() },
	"cosine_min": func(d *tensors.Distance) float64 { return d.CosineMin },
	"max":        func(d *tensors.Distance) float64 { return d.Max },
	"rms":        func(d *tensors.Distance) float64 { return d.RMS() },
	"relative":   func(d *tensors.Distance) float64 { return d.Relative() },
	"nonfinite":  func(d *tensors.Distance) float64 { return float64(d.NonFinite) },
}

// runDiff compares two captures.
func runDiff(args []string) error {
	var a diffArgs
	flags := newFlags("diff", diffHelp)
	layer := flags.String("layer", "", "only layer `N`; none for what belongs to no layer")
	flags.StringVar(&a.filter.Tensor, "tensor", "", "only tensors that match `GLOB`, with or without layer suffix: l_out, ffn_*, Qcur-0#2")
	by := flags.String("by", "tensor", "what a line stands for, `WHAT`: layer, tensor, token or row; row writes JSON lines")
	flags.BoolVar(&a.json, "json", false, "write JSON")
	bounds := flags.String("fail-if", "", "end with status 1 where all rows together are beyond `BOUND`: cosine<0.999, cosine_min<0.9, max>0.1, rms>0.01, relative>0.01, nonfinite>0")
	paths, err := parseFlags(flags, args, 2)
	if err != nil || paths == nil {
		return err
	}
	if err := a.settle(*layer, *by, *bounds); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	var runs [2]*tensors.Run
	for i := range runs {
		if paths[i], err = resolveRun(paths[i]); err != nil {
			return err
		}
		if runs[i], err = tensors.Open(paths[i]); err != nil {
			return err
		}
		defer runs[i].Close()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d, err := a.write(ctx, runs[0], runs[1], terminal.Out)
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	return a.judge(d)
}

func (a *diffArgs) settle(layer, by, bounds string) (err error) {
	if a.filter.Layer, err = parseLayerFlag(layer); err != nil {
		return err
	}
	a.by = tensors.DiffBy(by)
	if !slices.Contains([]tensors.DiffBy{tensors.DiffByLayer, tensors.DiffByTensor, tensors.DiffByToken, tensors.DiffByRow}, a.by) {
		return fmt.Errorf("--by %q: use layer, tensor, token or row", by)
	}
	if bounds != "" {
		for _, text := range strings.Split(bounds, ",") {
			b, err := parseDiffBound(text)
			if err != nil {
				return err
			}
			a.bounds = append(a.bounds, b)
		}
	}
	return a.filter.Check()
}

func parseDiffBound(text string) (b diffBound, err error) {
	at := strings.IndexAny(text, "<>")
	if at < 0 {
		return b, fmt.Errorf("--fail-if %q: write a figure, < or >, and a number, such as cosine<0.999", text)
	}
	b = diffBound{text: text, figure: strings.TrimSpace(text[:at]), below: text[at] == '<'}
	if diffFigures[b.figure] == nil {
		return b, fmt.Errorf("--fail-if %q: there are cosine, cosine_min, max, rms, relative and nonfinite", text)
	}
	if b.limit, err = strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64); err != nil {
		return b, fmt.Errorf("--fail-if %q: %q is no number", text, text[at+1:])
	}
	return b, nil
}

// write compares, and writes what was asked for.
func (a *diffArgs) write(ctx context.Context, one, other *tensors.Run, out io.Writer) (*tensors.Diff, error) {
	bar := present.NewProgress(progressTerminal(a.by != tensors.DiffByRow || !term.IsTerminal(int(os.Stdout.Fd()))), "comparing")
	defer bar.Done()
	o := tensors.DiffOptions{Filter: a.filter, Progress: bar.Of}
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	if a.by == tensors.DiffByRow {
		return one.Diff(ctx, other, o, func(row *tensors.RowDiff) error { return lines.Encode(row) })
	}
	groups, err := one.NewDiffGroups(a.by)
	if err != nil {
		return nil, err
	}
	d, err := one.Diff(ctx, other, o, groups.Add)
	bar.Done()
	switch {
	case err != nil:
		return nil, err
	case a.json:
		return d, lines.Encode(struct {
			*tensors.Diff
			By    tensors.DiffBy      `json:"by"`
			Lines []tensors.DiffGroup `json:"lines"`
		}{d, a.by, groups.Lines()})
	}
	return d, tensors.WriteDiff(buffered, d, a.by, groups.Lines())
}

// judge holds the whole against the bounds.
func (a *diffArgs) judge(d *tensors.Diff) error {
	var broken []string
	for _, b := range a.bounds {
		if d.Total.Rows == 0 {
			return fmt.Errorf("--fail-if %s: no row could be compared", b.text)
		}
		is := diffFigures[b.figure](&d.Total)
		if b.below && is < b.limit || !b.below && is > b.limit {
			broken = append(broken, fmt.Sprintf("%s is %.6g (--fail-if %s)", b.figure, is, b.text))
		}
	}
	if broken != nil {
		return errors.New(strings.Join(broken, "; "))
	}
	return nil
}
