package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
)

// errTapped refuses to record below another recording: a program has one tap.
var errTapped = cli.Wrong(
	errors.New(
		"this llamatap runs under another llamatap, which records already: give the --tap-… flags to one of the two"))

func runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Summary: "generate text with a model, and record what you ask for",
		Usage: "[-m MODEL.gguf] -p TEXT [flags]", Raw: true,
		Text: `Flags, defaults and text are llama-completion's with -no-cnv --no-display-prompt. The generated text
goes to stdout and nothing else does; diagnostics go to stderr. Ctrl-C ends the run within a token, a second one at
once.

  llamatap run -p 'func main() {' -n 100 --tap-preset balanced
  llamatap run -m model.gguf -f prompt.txt --temp 0 --tap-resource-level DETAILED --tap-kv
  llamatap run -m model.gguf --prompts prompts.jsonl -np 4 --results results.jsonl
  llamatap run --embeddings --pooling mean -f texts.txt --embd-output-format json
`,
		Define: func(f *cli.Flags) func([]string) error {
			config.NewRun().Define(f)
			config.DefineTap(f)
			return runRun
		},
	}
}

// runRun generates text with a model. With a recorder, the model runs in a child of this process, which is the
// collector then; the child is the same program with the tap's flags taken out.
func runRun(args []string) error {
	args = lengthen(args)
	recorders := &config.Tap{}
	rest, err := recorders.Parse(args)
	if err != nil {
		return cli.Wrong(err)
	}
	before, err := findResumption(recorders, args, rest)
	if err != nil {
		return err
	}
	if before != nil {
		args, recorders = before.args, &config.Tap{}
		if rest, err = recorders.Parse(args); err != nil {
			return cli.Wrong(err)
		}
	}
	cfg, err := parseRun(rest)
	if errors.Is(err, cli.ErrHelp) || errors.Is(err, cli.ErrHelpAll) {
		return err
	}
	if err != nil {
		return cli.Wrong(afterTap(err, args))
	}
	if cfg.BLAS {
		if err := waitPassively(); err != nil {
			return err
		}
	}
	if tap.Recording() {
		if len(rest) < len(args) {
			return errTapped
		}
		defer tap.Detach()
		return runModel(cfg)
	}
	if err := resolveTap(recorders, cfg.Model); err != nil {
		return err
	}
	if err := checkAllRows(cfg, recorders); err != nil {
		return err
	}
	if before == nil { // what is resumed continues as it began
		if err := checkMaps(cfg, recorders); err != nil {
			return err
		}
	}
	if !recorders.Recording() {
		if before != nil {
			return cli.Wrong(
				errors.New(
					"--tap-resume resumes a recording, and the other arguments ask for none: give all of that run's, " +
						"or none"))
		}
		return runModel(cfg)
	}
	return recordModel(recorders, cfg, args, rest, before)
}

// checkAllRows refuses --all-rows beside recorders that would show the rest of each graph as computed.
func checkAllRows(cfg *config.Run, recorders *config.Tap) error {
	if !cfg.AllRows {
		return nil
	}
	if !recorders.Records(config.Activations) {
		return cli.Wrongf("--all-rows is for recordings of tensors: give --tap-point or --tap-tensor, or leave it out")
	}
	for _, r := range []config.Recorder{config.Resource, config.Ledger, config.Samples, config.Regions} {
		if recorders.Records(r) {
			return cli.Wrongf(
				"--all-rows does not compute the logits, which the %s recorder would show: leave one of the two out", r)
		}
	}
	return nil
}

// checkMaps refuses attention maps that nobody could recompute: those of sequences that have a part of the cache each.
func checkMaps(cfg *config.Run, recorders *config.Tap) error {
	if cfg.Parallel > 1 && recorders.Attention == ggmlhooks.AttentionKeep {
		return cli.Wrongf("-np %d: each sequence has a part of the cache, and --tap-attention (keep) records maps "+
			"of a cache that all share: give -np 1, or --tap-attention exact", cfg.Parallel)
	}
	return nil
}

// waitPassively starts this program again so that ggml's threads sleep while they wait, unless the environment says
// how they wait: threads that spin take the processors from those of the BLAS library. OpenMP reads the variable once.
func waitPassively() error {
	const policy = "OMP_WAIT_POLICY"
	for _, name := range []string{policy, "GOMP_SPINCOUNT"} {
		if os.Getenv(name) != "" {
			return nil
		}
	}
	self, err := llama.Self()
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", self, syscall.Exec(self, os.Args, append(os.Environ(), policy+"=passive")))
}

// shortForms are the flags of checkpoints, which llamatap run takes without tap-, too.
var shortForms = []string{"checkpoint-every", "checkpoint-path", "checkpoint-state", "resume"}

// lengthen writes the short forms out.
func lengthen(args []string) []string {
	long := slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(arg, "=")
		if short, ok := strings.CutPrefix(name, "--"); ok && slices.Contains(shortForms, short) {
			long[i] = "--tap-" + arg[len("--"):]
		}
	}
	return long
}

// unexpected is an argument that belongs to no flag.
type unexpected string

func (u unexpected) Error() string {
	return fmt.Sprintf("unexpected argument %q: a prompt is given with -p, in quotes", string(u))
}

// afterTap explains an argument that follows a flag of the tap whose value is optional, and is not one of its values.
func afterTap(err error, args []string) error {
	var word unexpected
	if !errors.As(err, &word) {
		return err
	}
	at := slices.Index(args, string(word))
	if at < 1 || !strings.HasPrefix(args[at-1], "--tap-") || strings.Contains(args[at-1], "=") {
		return err
	}
	return fmt.Errorf(
		"unexpected argument %q: %s takes no value, or not this one: 'llamatap help recording' lists those that it "+
			"takes", string(word), args[at-1])
}

// parseRun reads the arguments and the environment. Asked for help, it returns cli.ErrHelp.
func parseRun(args []string) (*config.Run, error) {
	cfg, f := config.NewRun(), &cli.Flags{}
	cfg.Define(f)
	rest, err := f.Parse(args)
	var unknown *cli.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil,
			fmt.Errorf(
				"%w: 'llamatap run --help-all' lists the flags; llama.cpp's other flags work with 'llamatap exec -- "+
					"llama-completion'", err)
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, unexpected(rest[0])
	}
	if err := cfg.ResolveEnv(os.LookupEnv); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

// signalCause is why a run was interrupted.
type signalCause struct{ signal syscall.Signal }

func (s signalCause) Error() string {
	if s.signal == syscall.SIGINT {
		return "by Ctrl-C (SIGINT)"
	}
	return fmt.Sprintf("by %v", s.signal)
}

// status is the exit status of a program that this signal ended.
func (s signalCause) status() int { return 128 + int(s.signal) }

// untilSignal returns a context that SIGINT or SIGTERM ends, with a signalCause. A second signal ends the process
// at once.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for s := range signals {
			cause := signalCause{s.(syscall.Signal)}
			if ctx.Err() != nil {
				os.Exit(cause.status())
			}
			cancel(cause)
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel(nil) }
}

// runModel is what the process that holds the model does: one run on this process's stdin, stdout and stderr, with
// its exit status.
func runModel(cfg *config.Run) error {
	if cfg.PromptsFile != "" {
		return runPrompts(cfg)
	}
	if cfg.Embeddings.Embeddings {
		return runEmbeddings(cfg)
	}
	ctx, stop := untilSignal()
	defer stop()
	text, settings := &wholeText{to: modelText()}, passedSettings()
	result, err := runner.Run(ctx, runner.Options{
		Config: cfg, State: settings.State, TextEvery: settings.TextEvery,
		Stdin: os.Stdin, Stdout: text, Stderr: present.Err, Progress: progressTerminal(true),
	})
	if result.Finish != "" {
		if endErr := text.end(); err == nil {
			err = endErr
		}
		if writeErr := result.WriteSummary(present.Err); err == nil {
			err = writeErr
		}
	}
	return signalStatus(err, result.Finish != "")
}

// wholeText passes text on and remembers whether its last line is ended.
type wholeText struct {
	to   io.Writer
	open bool
}

func (l *wholeText) Write(p []byte) (int, error) {
	n, err := l.to.Write(p)
	if n > 0 {
		l.open = p[n-1] != '\n'
	}
	return n, err
}

// end ends the last line, so that a shell's prompt, and tools that read lines, find it whole.
func (l *wholeText) end() error {
	if !l.open {
		return nil
	}
	l.open = false
	if _, err := io.WriteString(l.to, "\n"); err != nil {
		return fmt.Errorf("end the last line of the text: %w", err)
	}
	return nil
}

// modelText is where generated text goes: byte for byte into a file or pipe, and to a terminal like everything else.
func modelText() io.Writer {
	if term.IsTerminal(int(os.Stdout.Fd())) {
		return present.Out
	}
	return os.Stdout
}

// progressTerminal is where bars are drawn; nil where that is not a terminal, or there is no room.
func progressTerminal(room bool) io.Writer {
	if room && term.IsTerminal(int(os.Stderr.Fd())) {
		return os.Stderr
	}
	return nil
}

// signalStatus gives an error that a signal caused the exit status of that signal; reported means that the summary
// names it.
func signalStatus(err error, reported bool) error {
	var cause signalCause
	switch {
	case errors.As(err, &cause) && reported:
		return exitStatus{Code: cause.status()}
	case errors.As(err, &cause):
		return exitStatus{Code: cause.status(), Err: err}
	}
	return err
}

// modelSettings are what the collector passes to the model's process beside its arguments.
type modelSettings struct {
	Seed      uint32        // source of random seeds; 0: what the arguments say
	TextEvery int           // tokens between two checkpoints, behind which the text must not lag far; 0: none are made
	Done      *runner.Done  // what of a prompt file is done
	State     *runner.State // where the model's state is kept
}

// settingsVariable is the environment variable that holds them, as JSON.
const settingsVariable = "LLAMATAP_MODEL_SETTINGS"

// passedSettings are what the collector passed to this process; the zero value without a collector.
func passedSettings() (settings modelSettings) {
	_ = json.Unmarshal([]byte(os.Getenv(settingsVariable)), &settings)
	return settings
}

// runPrompts is runModel for a file of prompts. Results on a terminal leave no room for a bar.
func runPrompts(cfg *config.Run) error {
	ctx, stop := untilSignal()
	defer stop()
	settings := passedSettings()
	result, err := runner.RunPrompts(ctx, runner.Options{
		Config: cfg, Seed: settings.Seed, Done: settings.Done,
		KeepCold: settings.Done != nil && settings.Done.Answers > 0,
		Stdin:    os.Stdin, Stdout: present.Out, Stderr: present.Err,
		Progress: progressTerminal(cfg.ResultsFile != "" || !term.IsTerminal(int(os.Stdout.Fd()))),
	})
	begun := result.Elapsed > 0
	if begun {
		if writeErr := result.WriteSummary(present.Err); err == nil {
			err = writeErr
		}
	}
	return signalStatus(err, begun)
}

// runEmbeddings is runModel for embeddings.
func runEmbeddings(cfg *config.Run) error {
	ctx, stop := untilSignal()
	defer stop()
	result, err := runner.RunEmbeddings(ctx, runner.Options{
		Config: cfg, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Progress: progressTerminal(true),
	})
	if err == nil {
		err = result.WriteSummary(present.Err)
	}
	return signalStatus(err, false)
}
