package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/intervene"
)

// causalArguments are what causal was asked for.
type causalArguments struct {
	options          intervene.Options
	sweep            intervene.Sweep
	clean, answer    string
	wrong, pairs     string
	corrupt          []string
	vector, recorded string
	form             reportForm
	plot             plotFile
}

// graphForms are the formats that are pictures or files of the causal graph.
var graphForms = []string{"dot", "graphml", "svg", "neuronpedia"}

func causalCommand() *cli.Command {
	return &cli.Command{
		Name: "causal", Summary: "patch and ablate activations, and measure what depends on them",
		Usage: "[-m MODEL.gguf] --clean TEXT [--corrupt TEXT] [--answer TOKEN] [--wrong TOKEN]\n" +
			"    [--do ACTION] [--points LIST] [--layers LIST] [--tokens LIST] [--heads] [--graph]\n" +
			"    [--format text|json|csv|dot|graphml|svg|neuronpedia] [-o FILE] [--plot FILE]",
		Text: `Changes named points of a model while it computes a prompt, one by one, and measures what that does to
the next token: which layers, tokens and heads the answer depends on. With --graph it measures by which edges.

  patch     runs the corrupt prompt with values of the clean one (default with --corrupt)
  resample  runs the clean prompt with values of the corrupt one
  zero      runs the clean prompt with zeros (default without --corrupt)
  mean      runs the clean prompt with mean values of all tokens of the corrupt prompts, or of the clean ones
  project   runs the clean prompt without the direction of a control vector

An effect is the metric with the intervention less the metric without. Several pairs of prompts, from --pairs or several
--corrupt, give 95 % confidence intervals. docs/CAUSAL.md defines effects and edges.

  llamatap causal --clean 'func main() {' --corrupt 'type main struct {' --do resample --points resid_post
  llamatap causal --clean 'if err != nil {' --points z --heads --tokens -1 --answer return
  llamatap causal --clean 'func (f *File) Read(' --format svg -o graph.svg
  llamatap causal --pairs pairs.jsonl --metric logit-diff --format neuronpedia -o graph.json
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &causalArguments{}
			a.options.GPULayers = -1
			a.sweep.Top, a.sweep.Least = 30, 0.02
			f.Add("-m, --model FILE", &a.options.Model, "model (default: the embedded one)")
			f.Add("-p, --clean TEXT", notEmpty(&a.clean), "prompt with the answer that is looked into")
			f.Add("--corrupt TEXT", func(s string) error {
				a.corrupt = append(a.corrupt, "")
				return notEmpty(&a.corrupt[len(a.corrupt)-1])(s)
			}, "prompt of as many tokens with another answer; may be repeated")
			f.Add("--pairs FILE", &a.pairs, "prompts from JSON lines of clean, corrupt, answer, wrong")
			f.Add("--answer TOKEN", notEmpty(&a.answer), "next token of the clean prompt; mind the space before a word")
			f.Add("--wrong TOKEN", notEmpty(&a.wrong), "next token of the corrupt prompt")
			f.Add("--metric NAME", choice(&a.sweep.Metric, intervene.Metrics...), strings.Join(intervene.Metrics, ", ")+
				" (default: by the tokens given, logit-diff, prob or kl)")
			f.Add("--do ACTION", choice(&a.sweep.Action, intervene.Actions...), strings.Join(intervene.Actions, ", ")+
				" (default: patch with --corrupt, otherwise zero)")
			f.Add("--points LIST", listOf(&a.sweep.Points, config.ParsePoint), "points that are changed").
				Default = "embeddings,attn_out_post,mlp_out_post"
			f.Add("--layers LIST", parsed(&a.sweep.Layers, ggmlhooks.ParseLayerSet),
				"layers, such as 0-3,7 (default: all)")
			f.Add("--tokens LIST", setEach(a.addTokens),
				"positions in the prompt, such as 0,3-5,-1 for the last (default: all)")
			f.Add("--heads", &a.sweep.Heads, "change each head by itself, at points that have heads")
			f.Add("--together LIST", wordList(&a.sweep.Together, intervene.Axes...),
				"change these at once: "+strings.Join(intervene.Axes, ", "))
			f.Add("--vector FILE", &a.vector, "control vector whose directions project removes")
			f.Add("--from RUN", &a.recorded, "patch with values of a run recorded with --tap-point")
			f.Add("--graph", &a.sweep.Graph, "measure edges too; formats of graphs imply it")
			f.Add("--top N", &a.sweep.Top, "nodes of the graph, and rows of the text, at most")
			f.Add("--least FRACTION", parsed(&a.sweep.Least, parseFraction),
				"leave effects below this fraction of the largest out of the graph").Default = "0.02"
			a.options.Trials = intervene.DefaultTrials
			f.Add("--trials N", &a.options.Trials, "interventions in one decode")
			f.Add("-t, --threads N", &a.options.Threads, "threads (default: one per core)").Default = ""
			f.Add("-ngl, --n-gpu-layers N", &a.options.GPULayers, "layers on devices; -1: all that fit")
			f.Add("-dev, --device LIST", wordList(&a.options.Devices), "devices to use (default: all)")
			f.Add("--rpc LIST", wordList(&a.options.RPC), "RPC servers whose devices are used, host:port")
			f.Add("--cache-type TYPE", choice(&a.options.CacheType, "f16", "f32"), "type of cached keys and values").
				Default = "f16"
			f.Add("-fa, --flash-attn on|off", func(s string) error {
				a.options.FlashAttention = s == "on"
				return choice(&s, "on", "off")(s)
			}, "compute attention as one operation; it forms no scores").Default = "off"
			a.plot.define(f)
			a.form.define(f, append([]string{"text", "json", "csv"}, graphForms...)...)
			return func([]string) error {
				if a.options.Trials < 1 {
					return cli.Wrongf("--trials %d: give a number from 1", a.options.Trials)
				}
				return a.run()
			}
		},
	}
}

// addTokens reads a position or a range of positions.
func (a *causalArguments) addTokens(s string) error {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange || from == "" {
		from, to = s, s
	}
	first, err := strconv.Atoi(from)
	last, lastErr := strconv.Atoi(to)
	if err != nil || lastErr != nil || last < first {
		return fmt.Errorf("token %q: give a position from 0, from -1 backwards from the end, or a range such as 3-5", s)
	}
	for ; first <= last; first++ {
		a.sweep.Tokens = append(a.sweep.Tokens, first)
	}
	return nil
}

// complete reads what files give, and fills in what was not said.
func (a *causalArguments) complete(ctx context.Context) (err error) {
	s := &a.sweep
	if s.Pairs, err = a.readPairs(); err != nil {
		return err
	}
	if len(s.Pairs) == 0 {
		return cli.Wrongf("give a prompt with --clean, or prompts with --pairs")
	}
	first := s.Pairs[0]
	if s.Action == "" {
		s.Action = "zero"
		switch {
		case a.vector != "":
			s.Action = "project"
		case a.recorded != "" || first.Corrupt != "":
			s.Action = "patch"
		}
	}
	if s.Metric == "" {
		s.Metric = "kl"
		if first.Answer != "" {
			s.Metric = "prob"
		}
		if first.Wrong != "" {
			s.Metric = "logit-diff"
		}
	}
	s.Graph = s.Graph || slices.Contains(graphForms, a.form.form)
	switch {
	case s.Graph && len(s.Together) > 0:
		return cli.Wrongf("--together %s: a graph is of single sites: leave one of both out",
			strings.Join(s.Together, ","))
	case s.Graph && a.form.form == "csv":
		return cli.Wrongf("--graph: CSV has effects and no edges: give --format json, dot or graphml, or drop --graph")
	case s.Top < 1:
		return cli.Wrongf("--top %d: give a number from 1", s.Top)
	case (s.Action == "project") != (a.vector != ""):
		return cli.Wrongf("--do project and --vector FILE go together: 'llamatap vector' makes such a file")
	case s.Action == "project" && s.Heads:
		return cli.Wrongf("--heads: a control vector has directions of whole rows: leave --heads out")
	case a.recorded != "" && s.Action != "patch":
		return cli.Wrongf("--from is for --do patch, not for %s", s.Action)
	case a.vector != "":
		s.Vector, err = gguf.OpenControlVector(a.vector)
	case a.recorded != "":
		var path string
		if path, err = resolveRun(a.recorded); err != nil {
			return err
		}
		var run *tensors.Run
		if run, err = tensors.Open(path); err != nil {
			return err
		}
		defer run.Close()
		if len(s.Points) == 0 {
			s.Points = intervene.DefaultPoints
		}
		s.Recorded, err = intervene.OpenRecording(ctx, run, s.Points)
	}
	return err
}

// readPairs are the prompts of the file and of the flags.
func (a *causalArguments) readPairs() (pairs []intervene.Pair, err error) {
	if a.clean != "" {
		for _, corrupt := range append(a.corrupt, "")[:max(len(a.corrupt), 1)] {
			pairs = append(pairs, intervene.Pair{Clean: a.clean, Corrupt: corrupt, Answer: a.answer, Wrong: a.wrong})
		}
	} else if len(a.corrupt) > 0 {
		return nil, cli.Wrongf("--corrupt needs --clean: the prompt that it differs from")
	}
	if a.pairs == "" {
		return pairs, nil
	}
	data, err := os.ReadFile(a.pairs)
	if err != nil {
		return nil, fmt.Errorf("--pairs: %w: give a file of JSON lines", err)
	}
	lines := json.NewDecoder(bytes.NewReader(data))
	lines.DisallowUnknownFields()
	for {
		p := intervene.Pair{}
		switch err := lines.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pairs, nil
		case err != nil:
			return nil, fmt.Errorf(`%s, pair %d: %w: a line is {"clean":…,"corrupt":…,"answer":…,"wrong":…}`,
				a.pairs, len(pairs)+1, err)
		case p.Clean == "":
			return nil, fmt.Errorf("%s, pair %d has no clean prompt: add \"clean\"", a.pairs, len(pairs)+1)
		}
		p.Answer, p.Wrong = cmp.Or(p.Answer, a.answer), cmp.Or(p.Wrong, a.wrong)
		pairs = append(pairs, p)
	}
}

func (a *causalArguments) run() error {
	ctx, stop := untilInterrupt()
	defer stop()
	if err := a.complete(ctx); err != nil {
		return err
	}
	if err := cmp.Or(canWrite(a.form.file, "-o"), canWrite(string(a.plot), "--plot")); err != nil {
		return err
	}
	e, err := intervene.Open(ctx, a.options)
	if err != nil {
		return err
	}
	defer e.Close()
	bar := present.NewProgress(progressTerminal(true), "intervening")
	a.sweep.Progress = bar.Of
	report, err := a.sweep.Run(ctx, e)
	bar.Done()
	if err != nil {
		return err
	}
	if report.Graph == nil && slices.Contains(graphForms, a.form.form) {
		return exitStatus{130, errors.New("interrupted before the graph was measured: nothing was written")}
	}
	err = a.form.writeAs(report, forms{"csv": report.WriteCSV, "dot": report.WriteDOT, "graphml": report.WriteGraphML,
		"svg": report.WriteSVG, "neuronpedia": report.WriteNeuronpedia,
		"text": func(out io.Writer) error { return report.WriteText(out, a.sweep.Top) }})
	if err == nil && a.plot != "" {
		err = a.plot.save(report.Picture())
	}
	if err == nil && report.Partial {
		return exitStatus{130, errors.New("interrupted: the result is partial")}
	}
	return err
}
