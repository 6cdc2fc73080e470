package autoencoder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestResume interrupts a training in each third of its epochs, and resumes it on other numbers of processors: the bits
// are those of a training that was not interrupted.
func TestResume(t *testing.T) {
	for _, arch := range Archs {
		t.Run(arch, func(t *testing.T) {
			rows := newPlanted(17, 30, 2, 900)
			o := DefaultOptions(arch)
			o.Features, o.K, o.Batch, o.Epochs, o.DeadSteps, o.BufferBytes = 50, 3, 70, 3, 1, 100*17*4
			whole, err := NewTrainer(t.Context(), rows, testEngine, o)
			if err != nil {
				t.Fatal(err)
			}
			dead := 0.0
			whole.Progress = func(p Progress) { dead = max(dead, p.Dead) }
			if err := whole.Run(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			trainer, err := NewTrainer(t.Context(), rows, testEngine, o)
			if err != nil {
				t.Fatal(err)
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			for i, stop := range []int{5, 18, 30, 1000} {
				runtime.GOMAXPROCS(1 + i%3)
				ctx, cancel := context.WithCancel(t.Context())
				trainer.Progress = func(p Progress) {
					if p.Step == stop {
						cancel()
					}
				}
				err := trainer.Run(ctx, rows)
				cancel()
				if err == nil && stop == 1000 {
					break
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("%v", err)
				}
				if err := trainer.SaveCheckpoint(folder, About{Point: "resid_post"}); err != nil {
					t.Fatal(err)
				}
				var about About
				var same bool
				info, err := os.Stat(filepath.Join(folder, CheckpointName))
				if err != nil {
					t.Fatal(err)
				}
				if size, most := info.Size()+4*int64(len(trainer.all)), trainer.FileBytes(); size > most ||
					most > size+40<<10 {
					t.Errorf("checkpoint and weights take %d bytes, said to be %d", size, most)
				}
				if trainer, about, same, err = ResumeTrainer(folder, testEngine); err != nil || !same ||
					about.Point != "resid_post" || trainer.step != stop {
					t.Fatalf("%v, %v, %v", about, same, err)
				}
			}
			if !slices.Equal(trainer.all, whole.all) {
				t.Error("an interrupted training ends with other bits")
			}
			if dead == 0 {
				t.Error("no feature died, so that none was revived")
			}
			if err := trainer.Run(t.Context(), newPlanted(17, 30, 2, 901)); err != nil {
				t.Errorf("a training that is complete: %v", err)
			}
			again, _, _, err := ResumeTrainer(folder, testEngine)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Run(t.Context(), newPlanted(17, 30, 2, 901)); !errors.Is(err, errChanged) {
				t.Errorf("other rows: %v", err)
			}
		})
	}
}

// TestWrongFolder: a training that is complete is not resumed, one that was interrupted is not evaluated, and a dataset
// that was cut off is no recording; each error says what to do instead.
func TestWrongFolder(t *testing.T) {
	for file, want := range map[string]string{"": "of a training that was interrupted", ConfigName: "sae eval"} {
		folder := t.TempDir()
		if file != "" && os.WriteFile(filepath.Join(folder, file), nil, 0o600) != nil {
			t.Fatal("no file is written")
		}
		_, _, _, err := ResumeTrainer(folder, Plain{})
		if !errors.Is(err, ErrCheckpoint) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
	folder := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(folder, CheckpointName), nil, 0o600),
		os.Mkdir(filepath.Join(folder, "data"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "sae train --resume "+folder) {
		t.Errorf("an interrupted training: %v", err)
	}
	if _, err := OpenRecordings([]string{folder}, Selection{}); err == nil ||
		!strings.Contains(err.Error(), "was cut off: export or record it again") {
		t.Errorf("a dataset without shards: %v", err)
	}
}

// rowsOf are n rows of zeros.
type rowsOf int

func (n rowsOf) Each(_ context.Context, fn func(Row) error) error {
	for range n {
		if err := fn(Row{Values: make([]float32, 4)}); err != nil {
			return err
		}
	}
	return nil
}

// TestNothingToTrain: no rows, rows that are all held out, and zeros are three errors.
func TestNothingToTrain(t *testing.T) {
	for want, c := range map[string]struct {
		rows    rowsOf
		holdout float64
	}{"choose another point, or record": {0, 0}, "held out, 3: ": {3, 0.9999999}, "but zeros, 3: ": {3, 0}} {
		o := DefaultOptions(TopK)
		o.Holdout = c.holdout
		if _, err := measure(t.Context(), c.rows, o); !errors.Is(err, ErrNoRows) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCheckpointRefused damages a checkpoint in each of its parts.
func TestCheckpointRefused(t *testing.T) {
	rows := newPlanted(4, 6, 2, 100)
	o := DefaultOptions(TopK)
	o.Features, o.K, o.Batch = 8, 2, 10
	trainer, err := NewTrainer(t.Context(), rows, Plain{}, o)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, CheckpointName)
	if err := trainer.SaveCheckpoint(folder, About{}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string) string{
		"cut":     func(s string) string { return s[:len(s)-4] },
		"version": func(s string) string { return strings.Replace(s, `version\":1`, `version\":9`, 1) },
		"options": func(s string) string { return strings.Replace(s, `batch\":10`, `batch\":00`, 1) },
		"width":   func(s string) string { return strings.Replace(s, `width\":4`, `width\":5`, 1) },
		"names":   func(s string) string { return strings.Replace(s, `"moment2"`, `"moment3"`, 1) },
		"features": func(s string) string {
			return strings.Replace(strings.Replace(s, `features\":8`, `features\":9`, 1), `idle\":[`, `idle\":[0,`, 1)
		},
		"empty": func(string) string { return "" },
	} {
		bad := change(string(good))
		if bad == string(good) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := ResumeTrainer(folder, Plain{}); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
