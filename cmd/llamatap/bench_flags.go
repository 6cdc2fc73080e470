package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/bench/result"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/runner"
)

// benchArguments are what llamatap bench was asked for.
type benchArguments struct {
	models                                                 []string
	typesK, typesV, flash                                  []string
	prompts, gens, depths, batches, ubatches, threads, gpu []int
	parallel                                               []int
	pairs                                                  []bench.Prompt // of -pg

	repetitions, rounds, delay int
	seed                       uint64
	noWarmUp                   bool

	script, format, dir, results, resume, perToken string
	bounds                                         []bench.Bound

	tap []string // as --tap-name=value
}

// listValue is a flag whose values add up, commas or not.
type listValue func(string) error

func (f listValue) Set(s string) error { return f(s) }
func (f listValue) String() string     { return "" }

// intList adds numbers and ranges to a list.
func intList(to *[]int) listValue {
	return func(s string) error {
		values, err := bench.ParseInts(s)
		*to = append(*to, values...)
		return err
	}
}

// wordList adds words to a list. allowed are the words that there are; empty: any.
func wordList(to *[]string, allowed ...string) listValue {
	return func(s string) error {
		for word := range strings.SplitSeq(s, ",") {
			if len(allowed) > 0 && !slices.Contains(allowed, word) {
				return fmt.Errorf("there are %s", strings.Join(allowed, ", "))
			}
			*to = append(*to, word)
		}
		return nil
	}
}

// benchOption is a flag of llamatap bench: its names, its value's form and what it means.
type benchOption struct {
	names []string
	form  string
	help  string
	value flag.Value
}

// options is the table of flags. Those of tests have llama-bench's names and defaults.
func (a *benchArguments) options() []benchOption {
	cacheTypes := []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
	return []benchOption{
		{[]string{"-m", "--model"}, "FILE", "model (default: the embedded one)", wordList(&a.models)},
		{[]string{"-p", "--n-prompt"}, "N", "length of a prompt of random tokens (default: 512)", intList(&a.prompts)},
		{[]string{"-n", "--n-gen"}, "N", "tokens to generate (default: 128)", intList(&a.gens)},
		{[]string{"-pg"}, "PP,TG", "a prompt and a generation in one test", listValue(a.addPair)},
		{[]string{"-d", "--n-depth"}, "N", "tokens in the context before (default: 0)", intList(&a.depths)},
		{[]string{"-b", "--batch-size"}, "N", "most tokens per call (default: 2048)", intList(&a.batches)},
		{[]string{"-ub", "--ubatch-size"}, "N", "most tokens per graph (default: 512)", intList(&a.ubatches)},
		{[]string{"-ctk", "--cache-type-k"}, "TYPE", "type of the K cache (default: f16)", wordList(&a.typesK, cacheTypes...)},
		{[]string{"-ctv", "--cache-type-v"}, "TYPE", "type of the V cache (default: f16)", wordList(&a.typesV, cacheTypes...)},
		{[]string{"-t", "--threads"}, "N", "threads (default: one per core)", intList(&a.threads)},
		{[]string{"-np", "--parallel"}, "N", "sequences that are decoded at a time, each with such a prompt and generation (default: 1)", intList(&a.parallel)},
		{[]string{"-fa", "--flash-attn"}, "on|off|auto", "flash attention; 1 and 0 too (default: auto)", wordList(&a.flash, "on", "off", "auto", "1", "0")},
		{[]string{"-ngl", "--n-gpu-layers"}, "N", "layers on devices; -1: all that fit (default: -1)", intList(&a.gpu)},

		{[]string{"-f", "--script"}, "FILE", "YAML script with the tests, instead of the flags above (docs/BENCH.md)", plain(&a.script)},
		{[]string{"-r", "--repetitions"}, "N", "repetitions of each test (default: 5)", number(&a.repetitions)},
		{[]string{"--rounds"}, "N", "rounds in random order that the repetitions are shared out to; each visit is a process of its own (default: one per repetition, or one where there is one test)", number(&a.rounds)},
		{[]string{"--seed"}, "N", "of the order and of the random tokens (default: 1)", listValue(func(s string) error { _, err := fmt.Sscan(s, &a.seed); return err })},
		{[]string{"--delay"}, "SECONDS", "cool-down before each visit (default: 0)", number(&a.delay)},
		{[]string{"--no-warmup"}, "", "no pass that is not counted", &switchValue{&a.noWarmUp}},
		{[]string{"-o", "--output"}, strings.Join(result.Formats, "|"), "form of the result on stdout (default: md)", oneOf(&a.format, result.Formats)},
		{[]string{"--per-token"}, "FILE", "write a JSON line per token to a file", plain(&a.perToken)},
		{[]string{"--results"}, "FILE", "keep every visit in a file as soon as it has ended", plain(&a.results)},
		{[]string{"--resume"}, "FILE", "go on with such a file, or begin it", plain(&a.resume)},
		{[]string{"--fail-if"}, "BOUND", "exit with 1 where the ratio of a configuration to the first one is resolved to be beyond, such as decode<0.97", listValue(a.addBound)},
		{[]string{"--dir"}, "FOLDER", "where recordings lie while they are measured (default: this folder)", plain(&a.dir)},
	}
}

func (a *benchArguments) addPair(s string) error {
	values, err := bench.ParseInts(s)
	if err != nil || len(values) != 2 {
		return errors.New("write PP,TG such as 512,128")
	}
	a.pairs = append(a.pairs, bench.Prompt{Length: values[0], Gen: values[1]})
	return nil
}

func (a *benchArguments) addBound(s string) error {
	bounds, err := bench.ParseBounds(s)
	a.bounds = append(a.bounds, bounds...)
	return err
}

func plain(to *string) listValue {
	return func(s string) error { *to = s; return nil }
}

func oneOf(to *string, allowed []string) listValue {
	return func(s string) error {
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("there are %s", strings.Join(allowed, ", "))
		}
		*to = s
		return nil
	}
}

func number(to *int) listValue {
	return func(s string) error {
		values, err := bench.ParseInts(s)
		if err == nil && len(values) != 1 {
			err = errors.New("one number is wanted")
		}
		if err == nil {
			*to = values[0]
		}
		return err
	}
}

// switchValue is a flag without a value.
type switchValue struct{ to *bool }

func (v *switchValue) Set(s string) error { *v.to = s == "true"; return nil }
func (v *switchValue) String() string     { return "" }
func (v *switchValue) IsBoolFlag() bool   { return true }

// parseBench reads the flags. Asked for help it returns flag.ErrHelp.
func parseBench(args []string) (*benchArguments, error) {
	a := &benchArguments{format: "md", dir: ".", seed: 1, repetitions: -1, rounds: -1, delay: -1}
	tap, rest, err := config.SplitTapArgs(args)
	if err != nil {
		return nil, err
	}
	a.tap = tap
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for _, o := range a.options() {
		for _, name := range o.names {
			flags.Var(o.value, strings.TrimLeft(name, "-"), o.help)
		}
	}
	if err := flags.Parse(rest); err != nil {
		return nil, config.ExplainFlagError(flags, rest, err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; 'llamatap bench --help' lists the flags", flags.Arg(0))
	}
	for _, flag := range tap {
		if strings.HasPrefix(flag, "--tap-out=") {
			return nil, errors.New("--tap-out: what is recorded is removed after each visit; --dir is where it lies until then")
		}
	}
	if a.results != "" && a.resume != "" {
		return nil, errors.New("--results and --resume name a file each: give one of them")
	}
	return a, nil
}

// plan makes the plan of the flags or of the script.
func (a *benchArguments) plan() (*bench.Plan, error) {
	pace := bench.Pace{Repetitions: 5, Seed: a.seed, PerToken: a.perToken != ""}
	scenarios := []bench.Scenario{a.scenario()}
	if a.script != "" {
		if len(a.models)+len(a.prompts)+len(a.gens)+len(a.pairs)+len(a.depths)+len(a.batches)+len(a.ubatches)+len(a.threads)+len(a.gpu)+len(a.parallel)+
			len(a.typesK)+len(a.typesV)+len(a.flash)+len(a.tap) > 0 {
			return nil, errors.New("-f has its own tests: write models, prompts, settings and tap configurations into the script")
		}
		script, err := bench.ReadScript(a.script)
		if err != nil {
			return nil, err
		}
		if err := script.Apply(&pace); err != nil {
			return nil, err
		}
		if scenarios, err = script.Expand(filepath.Dir(a.script), runner.Cores()); err != nil {
			return nil, fmt.Errorf("script %s: %w", a.script, err)
		}
	}
	if a.repetitions >= 0 {
		pace.Repetitions = a.repetitions
	}
	if a.rounds >= 0 {
		pace.Rounds = a.rounds
	}
	if a.delay >= 0 {
		pace.CoolDown = time.Duration(a.delay) * time.Second
	}
	pace.NoWarmUp = pace.NoWarmUp || a.noWarmUp
	return bench.NewPlan(scenarios, pace)
}

// scenario is what the flags of tests say. With a recorder each test is measured without and with it.
func (a *benchArguments) scenario() bench.Scenario {
	s := bench.Scenario{
		Models: a.models, Depths: a.depths, Batches: a.batches, MicroBatches: a.ubatches, Threads: a.threads, Layers: a.gpu,
		Sequences: a.parallel,
		TypesK:    a.typesK, TypesV: a.typesV, FlashAttention: a.flash,
	}
	if len(s.Threads) == 0 {
		s.Threads = []int{runner.Cores()}
	}
	prompts, gens := a.prompts, a.gens
	if len(prompts) == 0 {
		prompts = []int{512}
	}
	if len(gens) == 0 {
		gens = []int{128}
	}
	for _, n := range prompts {
		s.Prompts = append(s.Prompts, bench.Prompt{Length: n})
	}
	for _, n := range gens {
		s.Prompts = append(s.Prompts, bench.Prompt{Gen: n})
	}
	s.Prompts = append(s.Prompts, a.pairs...)
	if len(a.tap) > 0 {
		s.Taps = []bench.TapSetting{{Name: "off"}, {Name: "on", Flags: a.tap}}
	}
	return s
}

// benchHelp tells what the benchmarks are.
func benchHelp(out io.Writer) error {
	fmt.Fprint(out, `llamatap bench: benchmarks

usage: llamatap bench tap [FLAGS]              what the tap costs, as ratios of paired runs; also without arguments
       llamatap bench FLAGS                    measure a model, with llama-bench's flags and forms
       llamatap bench -f SCRIPT.yaml [FLAGS]   the tests of a script
       llamatap bench compare [--fail-if BOUND] OLD.json NEW.json
       llamatap bench programs                 STRAP-LLM's programs baseline_dump, optimized_streaming, compression_analysis, memory_profiling;
                                               each is a command, too: llamatap bench baseline_dump --help

Numbers may be lists (1,2,4) and ranges (first-last, first-last+step, first-last*factor); a flag given twice adds up. With a --tap-…
flag each test is measured without and with the tap, and their ratio is told. Ctrl-C ends with what has been measured.

`)
	for _, o := range (&benchArguments{}).options() {
		if _, err := fmt.Fprintf(out, "  %-33s %s\n", strings.Join(o.names, ", ")+" "+o.form, o.help); err != nil {
			return err
		}
	}
	return nil
}
