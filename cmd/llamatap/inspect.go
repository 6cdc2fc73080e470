package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// inspectArgs are the arguments of 'llamatap inspect'.
type inspectArgs struct {
	reportForm
	path             string
	filter           tensors.Filter
	stats, attention bool
	points           bool
	point            []ggmlhooks.PointRef
	by, head, token  string
	ctx              *uint32
}

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name: "inspect", Summary: "show what a run holds: layers, tokens, shapes, bytes, losses, statistics", Max: 1,
		Usage: "[RUN|FILE.stream] [--layer N] [--tensor GLOB] [--stats [--by tensor|packet|token]] [--json]\n" +
			"[RUN] --attention --layer N --head H [--token I|A:B] [--format text|json|npy] [-o FILE]\n" +
			"[RUN|MODEL.gguf] --points [--json]",
		Text: `Shows layers, tokens, shapes, bytes, ratio and losses of the tensors, and what else the run recorded.
--layer and --tensor list tensors; --stats adds mean, population standard deviation, minimum, maximum and L2 norm of
the finite values, the share of exact zeros among all elements, and counts of NaN and Inf. A stream outside of a run
directory is read with its index, or as STRAP-LLM writes it, without; then the output says what had to be assumed.

--attention shows the weights with which tokens attend to KV cells, of a run recorded with --tap-attention: recomputed
from the captured Q, K and mask where flash attention ran, else as llama.cpp computed them. JSON has one line per
token with all weights, and the token whose key each cell holds; npy a float32 array [tokens, cells].

--points lists the named points of a run that was recorded with --tap-point, or of a model, which is loaded for it and
given one token: which tensor each is, or why the model has none. --point NAME shows their tensors alone.

  llamatap inspect                            the newest run
  llamatap inspect RUN --layer 3
  llamatap inspect RUN --stats --tensor 'l_out' --json
  llamatap inspect RUN --stats --by token --tensor l_out-0    one JSON line per tensor and token
  llamatap inspect RUN --attention --layer 3 --head 0
  llamatap inspect model.gguf --points
  llamatap inspect RUN --stats --point resid_post
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := inspectArgs{by: string(tensors.ByTensor)}
			defineLayer(f, &a.filter.Layer)
			f.Add("--tensor GLOB", &a.filter.Tensor, tensorHelp).Deprecated("--tensors")
			f.Add("--points", &a.points, "list named points, such as resid_post, and the tensors that are they")
			definePoint(f, &a.point)
			f.Add("--stats", &a.stats, "read the tensors and show statistics")
			f.Add("--by tensor|packet|token", choice(&a.by, "tensor", "packet", "token"),
				"group of the statistics; packet and token write JSON lines").Default = a.by
			f.Add("--attention", &a.attention, "show the attention of one head of one layer")
			f.Add("--head H", &a.head, "with --attention: the head")
			f.Add("--token I|A:B", &a.token, "with --attention: only this token, or from A to before B").
				Deprecated("--tokens")
			f.Add("--ctx N", parsed(&a.ctx, parseContext), "with --attention: the context").Default = "0"
			a.define(f, "text", "json", "npy")
			f.Add("", func(string) error { a.form = "npy"; return nil }, "").Deprecated("--npy")
			return func(args []string) (err error) {
				switch {
				case a.points && a.attention:
					return cli.Wrongf("--points and --attention are two views: give one of them")
				case a.form == "npy" && !a.attention:
					return cli.Wrongf("npy is a format of --attention: 'llamatap export --to npy' writes tensors")
				}
				if a.points && len(args) == 1 && strings.HasSuffix(args[0], ".gguf") {
					return a.modelPoints(args[0])
				}
				if a.path, err = resolveRun(args...); err != nil {
					return err
				}
				return a.run()
			}
		},
	}
}

const tensorHelp = "only tensors that match, with or without layer suffix: l_out, ffn_*, Qcur-0#2"

// run shows what a run directory or a stream holds.
func (a *inspectArgs) run() error {
	var o tensors.MapOptions
	switch err := a.filter.Check(); {
	case err != nil:
		return cli.Wrong(err)
	case a.by != string(tensors.ByTensor) && !a.stats:
		return cli.Wrongf("--by %s groups statistics: add --stats", a.by)
	case a.attention:
		if o, err = a.mapOptions(); err != nil {
			return cli.Wrong(err)
		}
	}
	run, err := tensors.Open(a.path)
	if errors.Is(err, tensors.ErrNotARun) && !a.attention && !a.stats && !a.narrowed() {
		all, readErr := resources.ReadRun(a.path)
		if readErr != nil {
			return err
		}
		return a.writeAs(all, forms{"text": all.WriteText})
	}
	if err != nil {
		return err
	}
	defer run.Close()
	if a.points {
		return a.writePoints(run)
	}
	if len(a.point) > 0 {
		notes, err := run.SelectPoints(&a.filter, a.point)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintf(present.Err, "note: %s\n", note)
		}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	if !a.attention {
		return a.write(func(out io.Writer) error { return a.show(ctx, run, out) })
	}
	attention, err := tensors.NewMap(run, o)
	if err != nil {
		return err
	}
	return a.writeAs(nil, forms{"text": attention.WriteText, "json": attention.WriteJSON, "npy": attention.WriteNPY})
}

// mapOptions turns the flags into the choice of an attention map.
func (a *inspectArgs) mapOptions() (o tensors.MapOptions, err error) {
	if a.filter.Layer == nil || *a.filter.Layer < 0 || a.head == "" {
		return o, errors.New("--attention shows one head of one layer: give --layer N and --head H")
	}
	o.Layer = *a.filter.Layer
	if o.Head, err = strconv.Atoi(a.head); err != nil || o.Head < 0 {
		return o, fmt.Errorf("--head %q: give the number of a head, from 0", a.head)
	}
	if a.ctx != nil {
		o.Ctx = *a.ctx
	}
	o.First, o.End, err = parseTokens(a.token)
	return o, err
}

func (a *inspectArgs) show(ctx context.Context, run *tensors.Run, out io.Writer) error {
	if by := tensors.By(a.by); by != tensors.ByTensor {
		lines, count := jsonLines(out), 0
		err := tensors.EachMeasure(ctx, run, a.filter, by,
			func(m *tensors.Measure) error { count++; return lines.Encode(m) })
		if err == nil && count == 0 {
			err = run.Unknown(a.filter)
		}
		return err
	}
	summary, err := tensors.Summarize(run, a.filter)
	if err != nil {
		return err
	}
	if a.narrowed() && summary.Packets == 0 {
		return run.Unknown(a.filter)
	}
	if a.stats {
		bar := present.NewProgress(progressTerminal(true), "measuring")
		err := tensors.MeasureTensors(ctx, run, a.filter, summary, bar.Of)
		bar.Done()
		if err != nil {
			return err
		}
	}
	switch {
	case a.form == "json":
		return writeJSON(out, summary)
	case a.stats:
		return summary.WriteStats(out)
	case a.narrowed():
		return summary.WriteTensors(out)
	}
	if err := summary.WriteText(out); err != nil || run.Kind != tensors.KindRun {
		return err
	}
	all, err := resources.ReadRun(a.path)
	if err != nil || len(all.Data) < 2 {
		return nil // the tensors were shown
	}
	fmt.Fprintln(out, "\nalso recorded:")
	return all.WriteData(out, "tensors")
}

func (a *inspectArgs) narrowed() bool {
	return a.filter.Layer != nil || a.filter.Tensor != "" || a.points || len(a.point) > 0
}

// modelPoints lists the points of a model, by a run of one token in a process of its own.
func (a *inspectArgs) modelPoints(model string) error {
	self, err := llama.Self()
	if err != nil {
		return err
	}
	out, err := os.MkdirTemp("", "llamatap-points-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	var said bytes.Buffer
	cmd := exec.Command(self, "run", "-m", model, "-p", "a", "-n", "1", "-c", "256", "--no-warmup",
		"--tap-point", "all", "--tap-out", out)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s for one token: %w: %s", model, err, strings.TrimSpace(said.String()))
	}
	found := rundir.Find(out)
	if len(found) != 1 {
		return fmt.Errorf("%s recorded nothing in one token: %s", model, strings.TrimSpace(said.String()))
	}
	run, err := tensors.Open(found[0])
	if err != nil {
		return err
	}
	defer run.Close()
	return a.writePoints(run)
}

func (a *inspectArgs) writePoints(run *tensors.Run) error {
	rows, err := run.Points()
	if err != nil {
		return err
	}
	return a.writeAs(rows, forms{"text": func(out io.Writer) error { return tensors.WritePoints(out, rows) }})
}

// definePoint adds the flag of points.
func definePoint(f *cli.Flags, to *[]ggmlhooks.PointRef) {
	f.Add("--point NAME[,NAME]", listOf(to, config.ParsePoint),
		"only the tensors at these points of a run recorded with --tap-point, such as resid_post,mlp_act.3")
}

// defineLayer adds the flag of one layer; nil means no choice.
func defineLayer(f *cli.Flags, to **int) {
	f.Add("--layer N", func(text string) error {
		layer, err := strconv.Atoi(text)
		switch {
		case text == "none":
			layer = ggmlhooks.NoLayer
		case err != nil || layer < 0:
			return errors.New("give a layer number from 0, or none for what belongs to no layer")
		}
		*to = &layer
		return nil
	}, "only this layer; none is what belongs to no layer").Deprecated("--layers")
}
