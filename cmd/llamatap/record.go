//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	tapped "github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
	"github.com/llamatap/llamatap/runner/session"
	"github.com/llamatap/llamatap/store/stream"
)

// resolveTap reads what the tap shall record. arch is the model's architecture, where a purpose needs it.
func resolveTap(tap *config.Tap, model string) error {
	if err := tap.Resolve(config.ResolveOptions{}); err != nil {
		return cli.Wrong(err)
	}
	if tap.Purpose == "" {
		return nil
	}
	arch := "llama" // the embedded model
	if model != "" {
		arch = ""
		if f, err := gguf.Open(model); err == nil {
			arch, _ = f.Metadata.Text("general.architecture")
		}
	}
	if err := tap.Resolve(config.ResolveOptions{Architecture: arch}); err != nil {
		return cli.Wrong(err)
	}
	return nil
}

// recordModel starts the child. What would make it fail at once is reported before anything is created for it.
func recordModel(recorders *config.Tap, cfg *config.Run, args, rest []string, before *resumption) error {
	if cfg.Model != "" {
		if err := runner.CheckModel(cfg.Model); err != nil {
			return err
		}
	}
	if n := layersOf(cfg.Model); n > 0 {
		if err := recorders.CheckLayers(n); err != nil {
			return cli.Wrong(err)
		}
	}
	self, err := llama.Self()
	if err != nil {
		return err
	}
	var o session.Options
	if recorders.Checkpoint.Every > 0 || before != nil {
		seed, seedArgs := chooseSeed(cfg, before)
		args, rest = slices.Concat(args, seedArgs), slices.Concat(rest, seedArgs)
		if cfg, err = parseRun(rest); err != nil {
			return err
		}
		if o.Repeat, err = repeat(cfg, args); err != nil {
			return err
		}
		o.Repeat.Seed = seed
	}
	if before != nil {
		if err := before.check(recorders, cfg); err != nil {
			return err
		}
		o.Resume = before.checkpoint
	}
	if recorders.Sink != "" && before != nil {
		return cli.Wrongf(
			"--tap-sink with --tap-resume: the consumer would get an end without its beginning; read the files")
	}
	o.Results, o.NoLogits = cfg.ResultsFile, cfg.AllRows
	o.Command = exec.Command(self, append([]string{"run"}, rest...)...)
	o.Command.Stdin, o.Command.Stdout, o.Command.Stderr = os.Stdin, os.Stdout, os.Stderr
	settings := modelSettings{Seed: o.Repeat.Seed, TextEvery: recorders.Checkpoint.Every}
	if before != nil {
		run := before.checkpoint.Run.Dir
		o.Begin = func(kept *stream.Kept) (session.Start, error) {
			start, err := settings.resume(cfg, recorders, kept, run)
			return start, errors.Join(err, settings.passTo(o.Command))
		}
	} else {
		if recorders.Checkpoint.State {
			if o.StateFolder, err = settings.keepState(cfg, recorders); err != nil {
				return err
			}
		}
		if err := settings.passTo(o.Command); err != nil {
			return err
		}
	}
	if recorders.Sink == "-" {
		if cfg.PromptsFile == "" || cfg.ResultsFile == "" {
			return cli.Wrong(errOwnOutput)
		}
		o.Command.Stdout = nil
	}
	return recordAs(o, recorders, append([]string{"run"}, args...))
}

// errOwnOutput refuses a consumer on the standard output of a program that writes there itself.
var errOwnOutput = errors.New(
	"--tap-sink -: standard output is the program's own; use --tap-sink fd:3 with 3>FILE or 3> >(consumer), or " +
		"unix:PATH")

// record runs a prepared program under the tap and ends as the program ended. Its checkpoints are for reading: it
// cannot be resumed.
func record(tap *config.Tap, cmd *exec.Cmd, args []string) error {
	if tap.Sink == "-" {
		return cli.Wrong(errOwnOutput)
	}
	if tap.Checkpoint.State {
		return cli.Wrongf(
			"--tap-checkpoint-state: the memory of %s is not kept; only that of llamatap run is: leave the flag out",
			args[0])
	}
	if tap.Resume != "" {
		return cli.Wrongf(
			"--tap-resume: a recording of %s cannot be resumed; only one of llamatap run can, and others can be read "+
				"up to their end", args[0])
	}
	return recordAs(session.Options{Command: cmd, Repeat: session.Repeat{Program: args[0]}}, tap, args)
}

func recordAs(o session.Options, tap *config.Tap, args []string) error {
	if tapped.Recording() {
		return errTapped
	}
	o.Tap, o.Version, o.Summary, o.Echo = tap, version, present.Err, append([]string{"llamatap"}, args...)
	o.Backends = runner.CommandBackends(o.Command)
	o.Llama = session.LlamaInfo{Version: llama.Version(), Prefix: runner.CommandPrefix(o.Command)}
	result, err := session.Run(context.Background(), o)
	if errors.Is(err, session.ErrSelection) {
		return cli.Wrong(err)
	}
	if err != nil {
		return err
	}
	if args[0] == "run" && result.Dir != "" {
		ctx, stop := untilInterrupt(syscall.SIGTERM, syscall.SIGHUP)
		writeVerdict(ctx, present.Err, result.Dir)
		stop()
	}
	return endAs(result, isFront(args[0]))
}

// endAs makes this process end as the model's did: with its status, or by its signal. A recording that lacks
// something, or was not made, ends with a status of its own; but under a program's own name (front) a call that
// computes nothing, such as --help, has nothing to record.
func endAs(result session.Result, front bool) error {
	if sig := result.Exit.Signal; sig != 0 && sig != syscall.SIGSTOP {
		endBySignal(sig)
	}
	if result.Exit.Status != 0 {
		return exitStatus{Code: result.Exit.Status}
	}
	if result.Incomplete {
		return exitStatus{Code: statusLossy, Err: errIncomplete}
	}
	if result.Lossy {
		return exitStatus{Code: statusLossy, Err: errLossy}
	}
	if result.Dir == "" && !front {
		return exitStatus{Code: statusLossy} // the summary says why
	}
	return nil
}

// endBySignal ends this process by a signal, as the model's was. Of SIGABRT and its like Go's runtime makes a trace
// and status 2, and signal.Reset leaves it that, so the kernel's own action is put back.
func endBySignal(sig syscall.Signal) {
	signal.Reset(sig)
	var standard [8]uint64 // the kernel's struct sigaction: SIG_DFL, no flags, no mask
	const maskBytes = 8
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&standard)), 0, maskBytes, 0, 0)
	syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) // the useful core is the model's
	syscall.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // any thread may take it, soon
}

// errIncomplete makes a run whose recording failed end with a status that a script sees.
var errIncomplete = errors.New(
	"the recording is not whole, for the reason above; --tap-on-failure stop ends the program when its recording fails")

// errLossy makes a run that lost something end with a status that a script sees.
var errLossy = errors.New(
	"not everything was recorded (LOST, above): --tap-overflow block loses no tensors, --tap-memory gives them more " +
		"room, and --tap-resource-rate limits events")

// layersOf is the number of layers of a model file, or of the embedded model; 0 where the file does not say.
func layersOf(model string) int {
	var file *gguf.File
	var err error
	if model == "" {
		file, err = gguf.ReadBytes(llamatap.DefaultModel)
	} else {
		file, err = gguf.Open(model)
	}
	if err != nil {
		return 0
	}
	return int(gguf.Identify(file, model).Layers)
}

// modelArgument finds the model among a program's arguments, as llama.cpp's programs spell it.
func modelArgument(args []string) string {
	for i, arg := range args {
		if (arg == "-m" || arg == "--model") && i+1 < len(args) {
			return args[i+1]
		}
		if path, ok := strings.CutPrefix(arg, "--model="); ok {
			return path
		}
	}
	return ""
}
