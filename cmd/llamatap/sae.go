package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llamatap/llamatap/cgo/vector"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/autoencoder"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner/doctor"
	"github.com/llamatap/llamatap/store/rundir"
)

func saeCommand() *cli.Command {
	return &cli.Command{
		Name: "sae", Summary: "train sparse autoencoders on captured activations, evaluate them, steer with a feature",
		Text: `A sparse autoencoder explains each row of activations as a sum of few directions, its features, out of
many. docs/AUTOENCODERS.md describes training and files; SAELens loads the folders.

  llamatap run --prompts text.jsonl -n 1 --tap-point resid_post
  llamatap sae train --layer 3 --features 2048 -o sae
  llamatap sae eval sae
  llamatap sae steer sae --feature 17 -o feature.gguf
`,
		Commands: []*cli.Command{saeTrainCommand(), saeEvalCommand(), saeSteerCommand()},
	}
}

// engine is the fastest one of this build.
func engine() autoencoder.Engine {
	if kernel, err := vector.New(); err == nil {
		return kernel
	}
	return autoencoder.Plain{}
}

// saeTraining are the arguments of sae train.
type saeTraining struct {
	autoencoder.Options
	what      autoencoder.Selection
	point     string
	folder    string
	bufferMiB int64
	every     time.Duration
}

func saeTrainCommand() *cli.Command {
	return &cli.Command{
		Name: "train", Summary: "train a sparse autoencoder on a tensor of recordings", Max: 10_000,
		Usage: "[RUN …] [--point NAME|--tensor GLOB] [--layer N] --features N [--arch NAME] -o DIR\n--resume DIR",
		Text: `Trains on the rows of one tensor, of all runs that are named or of the newest one. Rows are read in order
and drawn at random from a bounded buffer. Ctrl-C writes a checkpoint, from which --resume DIR resumes to the same bits.
The folder holds sae_weights.safetensors and cfg.json, which SAELens loads.

  topk      the K largest activations of a row
  jumprelu  activations above a threshold that each feature learns; --l0 weighs how many there are
  relu      positive activations; --l1 weighs their sum

  llamatap sae train RUN --point resid_post --layer 3 --features 2048 -o sae
  llamatap sae train RUN --tensor l_out-3 --features 2048 --arch jumprelu --l0 2 --epochs 4 -o sae
  llamatap sae train --resume sae
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := saeTraining{Options: autoencoder.DefaultOptions(autoencoder.TopK), bufferMiB: 256,
				every: 5 * time.Minute}
			resume := false
			f.Add("--point NAME", &a.point, "a point of runs recorded with --tap-point").Default = "resid_post"
			f.Add("--tensor GLOB", &a.what.Tensor, "the tensor by its name instead: l_out-3")
			defineLayer(f, &a.what.Layer)
			f.Add("--features N", &a.Features, "number of features")
			f.Add("--arch NAME", choice(&a.Arch, autoencoder.Archs...),
				"architecture: "+strings.Join(autoencoder.Archs, ", ")).Default = a.Arch
			f.Add("--k K", &a.K, "topk: active features of a row")
			f.Add("--l0 WEIGHT", &a.L0, "jumprelu: weight of the number of active features")
			f.Add("--bandwidth WIDTH", &a.Bandwidth, "jumprelu: interval around thresholds in which they learn")
			f.Add("--l1 WEIGHT", &a.L1, "relu: weight of the sum of activations")
			f.Add("--lr RATE", &a.Rate, "learning rate of Adam, after warming up")
			f.Add("--batch N", &a.Batch, "rows of a step")
			f.Add("--epochs N", &a.Epochs, "how often all rows are seen")
			f.Add("--seed N", &a.Seed, "seed of directions, order and held-out rows").Default = "0"
			f.Add("--buffer-mb MIB", &a.bufferMiB, "size in MiB of the buffer from which rows are drawn")
			f.Add("--holdout SHARE", &a.Holdout, "share of the rows that are kept for evaluation")
			f.Add("--dead-steps N", &a.DeadSteps, "steps without activation after which a feature is dead and revived")
			f.Add("--aux WEIGHT", &a.Aux, "weight of the loss that revives dead features; 0: none")
			f.Add("--checkpoint-every TIME", &a.every, "time between checkpoints")
			f.Add("--resume DIR", func(dir string) error { a.folder, resume = dir, true; return nil },
				"resume the training whose checkpoint is in DIR, with its options")
			f.Add("-o, --output DIR", &a.folder, "folder to write")
			return func(args []string) error {
				if resume {
					for _, flag := range f.List {
						name := flag.Names[len(flag.Names)-1]
						if f.Given(name) && name != "--resume" && name != "--checkpoint-every" {
							args = append(args, name)
						}
					}
					if len(args) > 0 {
						return cli.Wrongf("--resume takes runs and options from the checkpoint: drop %s",
							strings.Join(args, ", "))
					}
					return a.resume()
				}
				for _, of := range [][2]string{{"--k", autoencoder.TopK}, {"--l0", autoencoder.JumpReLU},
					{"--bandwidth", autoencoder.JumpReLU}, {"--l1", autoencoder.ReLU}} {
					if flag, arch := of[0], of[1]; f.Given(flag) && a.Arch != arch {
						return cli.Wrongf("%s is for --arch %s, not for %s: drop it, or give --arch %[2]s", flag, arch,
							a.Arch)
					}
				}
				return a.start(args, f.Given("--features"))
			}
		},
	}
}

// start trains from the beginning.
func (a *saeTraining) start(args []string, sized bool) error {
	if a.what.Tensor == "" {
		ref, err := config.ParsePoint(cmp.Or(a.point, ggmlhooks.PointResidPost.String()))
		if err != nil {
			return cli.Wrong(err)
		}
		a.what.Point = &ref
	}
	a.BufferBytes = a.bufferMiB << 20
	switch {
	case a.point != "" && a.what.Tensor != "":
		return cli.Wrongf("--point and --tensor name two tensors: drop one")
	case !sized:
		return cli.Wrongf("give --features N, such as 8 times the width of the activations")
	case a.Check() != nil:
		return cli.Wrong(a.Check())
	case a.folder == "":
		return cli.Wrongf("give a folder to write with -o DIR")
	case a.every <= 0:
		return cli.Wrongf("--checkpoint-every %v: give a time such as 5m", a.every)
	}
	paths, err := runPaths(args)
	if err != nil {
		return err
	}
	rows, err := openSelected(paths, a.what)
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := os.MkdirAll(a.folder, 0o777); err != nil {
		return rundir.ExplainFull(a.folder, err)
	}
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, name := range []string{autoencoder.ConfigName, autoencoder.CheckpointName} {
		if _, err := os.Stat(filepath.Join(a.folder, name)); err == nil {
			return fmt.Errorf("%s holds an autoencoder already: give another -o, or --resume %[1]s if it was "+
				"interrupted", a.folder)
		}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	if free, err := doctor.FreeMemory(os.DirFS("/")); err == nil {
		a.MaxBytes = int64(free)
	}
	bar := present.NewProgress(progressTerminal(true), "reading")
	t, err := autoencoder.NewTrainer(ctx, rows, engine(), a.Options)
	bar.Done()
	if err != nil {
		_ = os.Remove(a.folder) // if it is empty, as before
		return err
	}
	return a.train(ctx, t, rows)
}

// resume trains from a checkpoint on.
func (a *saeTraining) resume() error {
	t, about, same, err := autoencoder.ResumeTrainer(a.folder, engine())
	if err != nil {
		return err
	}
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if !same {
		fmt.Fprintln(present.Err, "llamatap: another processor or build began this training: results differ in "+
			"their last bits")
	}
	rows, err := openRows(about.Sources, &about)
	if err != nil {
		return err
	}
	defer rows.Close()
	ctx, stop := untilInterrupt()
	defer stop()
	return a.train(ctx, t, rows)
}

// lock locks the folder for this training until the file that it returns is closed.
func (a *saeTraining) lock() (*os.File, error) {
	file, err := rundir.Lock(a.folder)
	if errors.Is(err, rundir.ErrInUse) {
		err = fmt.Errorf("%s: another training writes there: give another -o, or wait until it ends", a.folder)
	}
	return file, err
}

// openRows opens recordings of what an autoencoder was trained on.
func openRows(paths []string, about *autoencoder.About) (*autoencoder.Recordings, error) {
	what := autoencoder.Selection{Layer: about.Layer, Tensor: about.Tensor}
	if about.Options != nil { // trained here: other programs name models differently
		what.Model = about.Model
	}
	if about.Point != "" {
		ref, err := config.ParsePoint(about.Point)
		if err != nil {
			return nil, err
		}
		what.Point, what.Tensor = &ref, ""
	}
	return openSelected(paths, what)
}

// openSelected opens recordings and prints what is missing of them.
func openSelected(paths []string, what autoencoder.Selection) (*autoencoder.Recordings, error) {
	rows, err := autoencoder.OpenRecordings(paths, what)
	if err != nil {
		return nil, err
	}
	for _, note := range rows.Notes {
		fmt.Fprintf(present.Err, "llamatap: %s\n", note)
	}
	return rows, nil
}

// runPaths are the runs that arguments name, as paths that stay valid; the newest run without arguments.
func runPaths(args []string) (paths []string, err error) {
	if len(args) == 0 {
		args = []string{""}
	}
	for _, arg := range args {
		path, err := resolveRun(arg)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// unsaved is the error of writing the result, with what is still there.
func (a *saeTraining) unsaved(err error) error {
	if _, missing := os.Stat(filepath.Join(a.folder, autoencoder.CheckpointName)); missing == nil {
		err = fmt.Errorf("%w; an earlier checkpoint is still there: then resume with 'llamatap sae train --resume %s'",
			err, a.folder)
	}
	return err
}

// train trains until the end, or an interruption, and prints how well held-out rows are explained.
func (a *saeTraining) train(ctx context.Context, t *autoencoder.Trainer, rows *autoencoder.Recordings) error {
	free, err := doctor.FreeDisk(a.folder)
	if need := uint64(t.FileBytes()); err == nil && free < need {
		_ = os.Remove(a.folder) // if it is empty, as before
		return fmt.Errorf("the autoencoder and a checkpoint take %s, and %s has %s free: free space there, or train "+
			"with another -o or fewer --features", present.Bytes(need), a.folder, present.Bytes(free))
	}
	bar := present.NewProgress(progressTerminal(true), "training")
	saved, last := time.Now(), autoencoder.Progress{}
	var saving error // why there is no newer checkpoint
	failed := 0      // the step at which it was to be written
	t.Progress = func(p autoencoder.Progress) {
		last = p
		bar.Of(int64(p.Step), int64(p.Steps))
		bar.Describe(fmt.Sprintf("loss %.4g, L0 %.1f, explained %.3f, dead %.1f %%, %.0f GFLOP/s", p.Loss, p.L0,
			p.ExplainedVariance, 100*p.Dead, p.Operations/1e9/p.Elapsed.Seconds()))
		if time.Since(saved) > a.every {
			if saving == nil {
				failed = p.Step
			}
			saving = t.SaveCheckpoint(a.folder, rows.About)
			saved = time.Now()
		}
	}
	err = t.Run(ctx, rows)
	bar.Done()
	if saving != nil {
		fmt.Fprintf(present.Err, "llamatap: no checkpoint since step %d of %d: %v\n", failed, last.Steps, saving)
	}
	if errors.Is(err, context.Canceled) {
		if err := t.SaveCheckpoint(a.folder, rows.About); err != nil {
			return a.unsaved(err)
		}
		fmt.Fprintf(present.Err, "llamatap: step %d of %d: resume with 'llamatap sae train --resume %s'\n", last.Step,
			last.Steps, a.folder)
	}
	if err != nil {
		return err
	}
	s := t.SAE(rows.About)
	if err := s.Save(a.folder); err != nil {
		return a.unsaved(err)
	}
	if err := os.Remove(filepath.Join(a.folder, autoencoder.CheckpointName)); err != nil && !os.IsNotExist(err) {
		return err
	}
	present.Printf("%s: %s, %d features of %d values, %d steps, %s rows; %.0f GFLOP/s (%s)\n", a.folder, s.Arch,
		s.Features, s.Width, s.About.Steps, present.Count(s.About.Rows), last.Operations/1e9/last.Elapsed.Seconds(),
		s.About.Engine)
	if s.About.Held == 0 {
		return nil
	}
	e, err := autoencoder.Evaluate(ctx, s, engine(), rows, autoencoder.EvaluateOptions{})
	if err != nil {
		return err
	}
	present.Printf("%s\n", evaluated(e))
	return nil
}
