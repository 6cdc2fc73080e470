package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner"
)

// benchArguments are what llamatap bench was asked for.
type benchArguments struct {
	reportForm
	plot          plotFile
	trace         traceArguments
	tests         bench.Scenario // prompts are those of -pg
	prompts, gens bench.Numbers

	repetitions, rounds, delay int
	seed                       uint64
	noWarmUp                   bool

	script, dir, results, resume, perToken string
	bounds                                 []bench.Bound

	tap []string // as --tap-name=value
}

// define adds the flags. Those of tests have llama-bench's names and defaults.
func (a *benchArguments) define(f *cli.Flags) {
	cacheTypes := []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
	a.dir, a.seed, a.repetitions, a.rounds, a.delay = ".", 1, -1, -1, -1 // -1: what a script says
	t := &a.tests
	f.Add("-m, --model FILE", wordList(&t.Models), "model (default: the embedded one)")
	f.Add("-p, --n-prompt N", a.prompts.Add, "length of a prompt of random tokens (default: 512)")
	f.Add("-n, --n-gen N", a.gens.Add, "tokens to generate (default: 128)")
	f.Add("-pg PP,TG", a.addPair, "a prompt and a generation in one test")
	f.Add("-d, --n-depth N", t.Depths.Add, "tokens in the context before (default: 0)")
	f.Add("-b, --batch-size N", t.Batches.Add, "most tokens per call (default: 2048)")
	f.Add("-ub, --ubatch-size N", t.MicroBatches.Add, "most tokens per graph (default: 512)")
	f.Add("-ctk, --cache-type-k TYPE", wordList(&t.TypesK, cacheTypes...), "type of the K cache (default: f16)")
	f.Add("-ctv, --cache-type-v TYPE", wordList(&t.TypesV, cacheTypes...), "type of the V cache (default: f16)")
	f.Add("-t, --threads N", t.Threads.Add, "threads (default: one per core)")
	f.Add("-np, --parallel N", t.Sequences.Add,
		"sequences that are decoded at a time, each with such a prompt and generation (default: 1)")
	f.Add("-fa, --flash-attn on|off|auto", wordList(&t.FlashAttention, "on", "off", "auto", "1", "0"),
		"flash attention; 1 and 0 too (default: auto)")
	f.Add("-ngl, --n-gpu-layers N", t.Layers.Add, "layers on devices; -1: all that fit (default: -1)")

	f.Add("-f, --script FILE", &a.script, "YAML script with the tests, instead of the flags above (docs/BENCH.md)")
	f.Add("-r, --repetitions N", setInt(&a.repetitions), "repetitions of each test (default: 5)")
	f.Add("--rounds N", setInt(&a.rounds),
		"rounds in random order that the repetitions are divided among; each visit is a process of its own "+
			"(default: one per repetition, or one where there is one test)")
	f.Add("--seed N", &a.seed, "seed of the order and of the random tokens")
	f.Add("--delay SECONDS", setInt(&a.delay), "cool-down before each visit (default: 0)")
	f.Add("--no-warmup", &a.noWarmUp, "skip the warm-up pass")
	a.reportForm.define(f, slices.Concat([]string{"md"},
		slices.DeleteFunc(slices.Clone(bench.Formats), func(s string) bool { return s == "md" }))...)
	f.List[len(f.List)-1].Set = func(s string) error {
		if slices.Contains(bench.Formats, s) { // as llama-bench has it
			a.form = s
		} else {
			a.file = s
		}
		return nil
	}
	a.plot.define(f)
	f.Add("--per-token FILE", &a.perToken, "write a JSON line per token to a file")
	f.Add("--results FILE", &a.results, "keep every visit in a file as soon as it has ended")
	f.Add("--resume FILE", &a.resume, "resume such a file, or begin it")
	f.Add("--fail-if BOUND", a.addBound,
		"exit with 1 where the ratio of a configuration to the first one is resolved to be beyond, such as decode<0.97")
	f.Add("--dir FOLDER", &a.dir, "where recordings lie while they are measured")
	a.trace.define(f)
}

func (a *benchArguments) addPair(s string) error {
	values, err := bench.ParseInts(s)
	if err != nil || len(values) != 2 {
		return errors.New("write PP,TG such as 512,128")
	}
	a.tests.Prompts = append(a.tests.Prompts, bench.Prompt{Length: values[0], Gen: values[1]})
	return nil
}

func (a *benchArguments) addBound(s string) error {
	bounds, err := bench.ParseBounds(s)
	a.bounds = append(a.bounds, bounds...)
	return err
}

// setInt stores a single number.
func setInt(to *int) func(string) error {
	return func(s string) error {
		values, err := bench.ParseInts(s)
		if err == nil && (len(values) != 1 || values[0] < 0) {
			err = errors.New("give one number, from 0")
		}
		if err == nil {
			*to = values[0]
		}
		return err
	}
}

// parse reads the flags.
func (a *benchArguments) parse(f *cli.Flags, args []string) error {
	tap, rest, err := config.SplitTapArgs(args)
	if err != nil {
		return err
	}
	a.tap = tap
	var unknown *cli.UnknownError
	switch rest, err = f.Parse(rest); {
	case errors.As(err, &unknown):
		return fmt.Errorf(
			"%w: 'llamatap bench --help' lists the flags; llama-bench's other flags work with 'llamatap exec -- "+
				"llama-bench'", err)
	case err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; 'llamatap bench --help' lists the flags", rest[0])
	case slices.ContainsFunc(tap, func(flag string) bool { return strings.HasPrefix(flag, "--tap-out=") }):
		return errors.New("--tap-out: what is recorded is removed after each visit; --dir is where it lies until then")
	case a.results != "" && a.resume != "":
		return errors.New("--results and --resume name a file each: give one of them")
	}
	return nil
}

// plan makes the plan of the flags or of the script.
func (a *benchArguments) plan() (*bench.Plan, error) {
	pace := bench.Pace{Repetitions: 5, Seed: a.seed, PerToken: a.perToken != ""}
	scenarios := []bench.Scenario{a.scenario()}
	if a.script != "" {
		if len(a.prompts)+len(a.gens)+len(a.tap) > 0 || !reflect.DeepEqual(a.tests, bench.Scenario{}) {
			return nil, errors.New("-f has its own tests: write models, prompts, settings and tap configurations " +
				"into the script")
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
	s := a.tests
	if len(s.Threads) == 0 {
		s.Threads = bench.Numbers{runner.Cores()}
	}
	s.Prompts = nil
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
	s.Prompts = append(s.Prompts, a.tests.Prompts...)
	if len(a.tap) > 0 {
		s.Taps = []bench.TapSetting{{Name: "off"}, {Name: "on", Flags: a.tap}}
	}
	return s
}
