//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner/session"
	"github.com/llamatap/llamatap/store/rundir"
)

// resumption is a run to resume.
type resumption struct {
	checkpoint *rundir.Checkpoint
	args       []string // its arguments, or those given now, without the one that asks for it
}

// findResumption reads the checkpoint that the arguments of run ask for; nil where they ask for none. A run's own
// arguments are taken where nothing else is given, and in the folder in which they were given.
func findResumption(tap *config.Tap, args, rest []string) (*resumption, error) {
	which := tap.Resuming()
	if which == "" {
		return nil, nil
	}
	path, err := checkpointOf(which, tap)
	if err != nil {
		return nil, err
	}
	c, err := rundir.ReadCheckpoint(path)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Run.Program != "run":
		return nil,
			fmt.Errorf(
				"%s is a recording of %s: it can be read up to %d tokens (llamatap inspect), and not resumed; only "+
					"llamatap run can be", c.Run.Dir, c.Run.Program, c.TotalTokens)
	case c.Run.Changed:
		return nil,
			fmt.Errorf("%s was changed by commands of llamatap ctl while it ran, which cannot be repeated: begin anew",
				c.Run.Dir)
	}
	r := &resumption{checkpoint: c, args: withoutFlag(args, "--tap-resume")}
	if !tap.OnlyResumes() || len(rest) > 0 {
		return r, nil
	}
	if c.Run.Args == nil {
		return nil,
			fmt.Errorf(
				"the checkpoint of %s holds no arguments (--tap-redact text): give those of the run with --tap-resume",
				c.Run.Dir)
	}
	r.args = c.Run.Args
	if err := os.Chdir(c.Run.Folder); err != nil {
		return nil,
			fmt.Errorf(
				"the folder in which the run was started: %w; start it again where its files are, with all its "+
					"arguments and --tap-resume", err)
	}
	return r, nil
}

// checkpointOf is the checkpoint file of what --tap-resume names.
func checkpointOf(which string, tap *config.Tap) (string, error) {
	if which == config.ResumeNewest {
		return newestCheckpoint(tap)
	}
	info, err := os.Stat(which)
	if err != nil {
		return "", fmt.Errorf("--tap-resume %s: %w; give a run directory or a checkpoint file", which, err)
	}
	if info.IsDir() {
		return filepath.Join(which, session.StreamName+rundir.CheckpointSuffix), nil
	}
	return which, nil
}

func newestCheckpoint(tap *config.Tap) (string, error) {
	out := config.DefaultOut
	if err := tap.Resolve(config.ResolveOptions{}); err == nil && tap.Out != "" {
		out = tap.Out
	}
	found, err := filepath.Glob(filepath.Join(out, "*", "run_*", session.StreamName+rundir.CheckpointSuffix))
	if err != nil {
		return "", err
	}
	newest, at := "", int64(0)
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.ModTime().UnixNano() > at {
			newest, at = path, info.ModTime().UnixNano()
		}
	}
	if newest == "" {
		return "", fmt.Errorf(
			"--tap-resume: no run below %s has a checkpoint; give its directory, or the folder with --tap-out", out)
	}
	return newest, nil
}

// withoutFlag takes a flag and its value out of arguments.
func withoutFlag(args []string, flag string) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		if args[i] == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			continue
		}
		if args[i] != flag && !strings.HasPrefix(args[i], flag+"=") {
			rest = append(rest, args[i])
		}
	}
	return rest
}

// check refuses to resume a run with other settings, and reports what differs.
func (r *resumption) check(tap *config.Tap, cfg *config.Run) error {
	was := &r.checkpoint.Run
	var differ []string
	now := session.Settings(tap)
	all := maps.Clone(now)
	maps.Copy(all, was.Settings)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(was.Settings[key], now[key]) {
			differ = append(differ, fmt.Sprintf("%s was %v and is %v", key, shown(was.Settings[key]), shown(now[key])))
		}
	}
	if was.Llama != llama.Version() {
		differ = append(differ, fmt.Sprintf("llama.cpp was %s and is %s", was.Llama, llama.Version()))
	}
	if model, err := fingerprint(cfg.Model); err != nil {
		return err
	} else if model != was.Model {
		differ = append(differ, fmt.Sprintf("the model's file is another one (fingerprint %.12s, was %.12s)", model,
			was.Model))
	}
	if was.Args != nil {
		before := &config.Tap{}
		rest, err := before.Parse(was.Args)
		if err != nil {
			return err
		}
		old, err := parseRun(rest)
		if err != nil {
			return err
		}
		differ = append(differ, old.Differences(cfg)...)
	}
	if len(differ) > 0 {
		return cli.Wrongf("%s cannot be resumed, because it would not be the same run: %s", was.Dir,
			strings.Join(differ, "; "))
	}
	return nil
}

func shown(v any) any {
	if v == nil {
		return "not given"
	}
	return v
}

// fingerprint identifies a model's file, or the embedded model.
func fingerprint(path string) (string, error) {
	if path == "" {
		return gguf.Fingerprint(bytes.NewReader(llamatap.DefaultModel), int64(len(llamatap.DefaultModel)))
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	return gguf.Fingerprint(file, info.Size())
}

// chooseSeed settles what random seeds are taken from, in a run of which checkpoints are made: it must be the same
// when the run is resumed. A single prompt is given it as its seed. Prompts of a file must not all have the
// same one; to them it is where theirs come from.
func chooseSeed(cfg *config.Run, before *resumption) (seed uint32, args []string) {
	if cfg.Seed != config.RandomSeed {
		return 0, nil
	}
	seed = 1 + rand.Uint32N(config.RandomSeed-1)
	if before != nil && before.checkpoint.Run.Seed != 0 {
		seed = before.checkpoint.Run.Seed
	}
	if cfg.PromptsFile != "" {
		return seed, nil
	}
	return seed, []string{"-s", strconv.FormatUint(uint64(seed), 10)}
}

// repeat is what a checkpoint of llamatap run must hold.
func repeat(cfg *config.Run, args []string) (session.Repeat, error) {
	folder, err := os.Getwd()
	if err != nil {
		return session.Repeat{}, err
	}
	model, err := fingerprint(cfg.Model)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // llama.cpp reports it
	}
	return session.Repeat{Program: "run", Args: args, Folder: folder, Model: model}, err
}
