package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// diffArgs are the arguments of 'llamatap diff'.
type diffArgs struct {
	reportForm
	filter tensors.Filter
	by     string
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

func diffCommand() *cli.Command {
	return &cli.Command{
		Name: "diff", Summary: "compare the tensors of two runs, by layer, tensor or token", Min: 2, Max: 2,
		Needs: "give the two runs to compare",
		Usage: "A B [--layer N] [--tensor GLOB] [--by layer|tensor|token|row] [--json] [--fail-if BOUND[,BOUND]]",
		Text: `A and B are runs or streams of the same prompts: of two quantisations, two builds of llama.cpp, two
codecs. A row of A is compared with that of B that has the same node (name, op, occurrence in the graph), context,
sequence, request, position and token; what has no counterpart is counted, and two nodes or shapes that only share a
name are refused by name. Each line shows, over its rows: mean and lowest cosine, the largest difference, the root mean
square of the differences, the same relative to that of A's values, and how many pairs were left out because one value
is NaN or infinite. Of logits (result_output) it also prints the KL divergence of the probabilities, how often the most
probable token is the same, and the tokens after which the runs differ most. JSON is one object, with --by row one line
per tensor and token.

  llamatap diff RUN_F16 RUN_Q4
  llamatap diff RUN_F16 RUN_Q4 --by layer --tensor l_out
  llamatap diff RUN_F16 RUN_Q4 --by token --tensor result_output --json
  llamatap diff OLD NEW --fail-if 'cosine<0.999,max>0.1'     exit status 1 where it is so
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := diffArgs{by: string(tensors.DiffByTensor)}
			defineLayer(f, &a.filter.Layer)
			f.Add("--tensor GLOB", &a.filter.Tensor, tensorHelp).Deprecated("--tensors")
			f.Add("--by layer|tensor|token|row", choice(&a.by, "layer", "tensor", "token", "row"),
				"what a line is about; row writes JSON lines").Default = a.by
			a.define(f, "text", "json")
			f.Add("--fail-if BOUND", a.addBounds,
				"exit with status 1 where all rows together are beyond: cosine<0.999, cosine_min<0.9, max>0.1, "+
					"rms>0.01, relative>0.01, nonfinite>0")
			return a.run
		},
	}
}

// run compares two captures.
func (a *diffArgs) run(paths []string) error {
	if err := a.filter.Check(); err != nil {
		return cli.Wrong(err)
	}
	var runs [2]*tensors.Run
	for i := range runs {
		path, err := resolveRun(paths[i])
		if err != nil {
			return err
		}
		if runs[i], err = tensors.Open(path); err != nil {
			return err
		}
		defer runs[i].Close()
		if err := tensors.Comparable(runs[i]); err != nil { // before the other is read, too
			return err
		}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	var d *tensors.Diff
	err := a.write(func(out io.Writer) (err error) { d, err = a.compare(ctx, runs[0], runs[1], out); return err })
	if err != nil {
		return err
	}
	return a.checkBounds(d)
}

func (a *diffArgs) addBounds(bounds string) error {
	for text := range strings.SplitSeq(bounds, ",") {
		b, err := parseDiffBound(text)
		if err != nil {
			return err
		}
		a.bounds = append(a.bounds, b)
	}
	return nil
}

func parseDiffBound(text string) (b diffBound, err error) {
	at := strings.IndexAny(text, "<>")
	if at < 0 {
		return b, fmt.Errorf("%q: write a figure, < or >, and a number, such as cosine<0.999", text)
	}
	b = diffBound{text: text, figure: strings.TrimSpace(text[:at]), below: text[at] == '<'}
	if diffFigures[b.figure] == nil {
		return b, fmt.Errorf("%q: use cosine, cosine_min, max, rms, relative or nonfinite", text)
	}
	if b.limit, err = strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64); err != nil {
		return b, fmt.Errorf("%q: %q is not a number", text, text[at+1:])
	}
	return b, nil
}

// compare compares, and writes what was asked for.
func (a *diffArgs) compare(ctx context.Context, run, other *tensors.Run, out io.Writer) (*tensors.Diff, error) {
	by, lines := tensors.DiffBy(a.by), jsonLines(out)
	bar := present.NewProgress(progressTerminal(by != tensors.DiffByRow || a.file != "-" ||
		!term.IsTerminal(int(os.Stdout.Fd()))), "comparing")
	defer bar.Done()
	o := tensors.DiffOptions{Filter: a.filter, Progress: bar.Of}
	if by == tensors.DiffByRow {
		return tensors.Compare(ctx, run, other, o, func(row *tensors.RowDiff) error { return lines.Encode(row) })
	}
	groups, err := tensors.NewDiffGroups(run, by)
	if err != nil {
		return nil, err
	}
	d, err := tensors.Compare(ctx, run, other, o, groups.Add)
	bar.Done()
	switch {
	case err != nil:
		return nil, err
	case a.form == "json":
		return d, lines.Encode(struct {
			*tensors.Diff
			By    tensors.DiffBy      `json:"by"`
			Lines []tensors.DiffGroup `json:"lines"`
		}{d, by, groups.Lines()})
	}
	return d, tensors.WriteDiff(out, d, by, groups.Lines())
}

// checkBounds compares the result with the bounds.
func (a *diffArgs) checkBounds(d *tensors.Diff) error {
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
