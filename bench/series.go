package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/bench/measure"
	"github.com/llamatap/llamatap/bench/result"
	"github.com/llamatap/llamatap/gguf"
)

// NamedModel is a model of the table.
type NamedModel struct {
	Name string // in the table
	Path string
}

// stockName is the name of the item that llama-bench measures.
const stockName = "llama-bench"

// Stage is what the sections of the table have in common: where they measure, with what, and what comes of it.
type Stage struct {
	Dir        string // folder for models and for what is recorded meanwhile
	Threads    int
	LlamaBench string // path that starts llama-bench, "" = leave it out
	Rounds     int    // at most
	Table      *Table
	Progress   func(string)
	// Rows gets what was measured in llama-bench's form, for bench compare.
	Rows        []result.Row
	Environment *Environment

	visit func(ctx context.Context, item *Item, seed uint64, dir string) (Visit, error) // nil: processes of this binary and llama-bench
}

// spec is what the sections measure, with llama-bench's settings.
func (s *Stage) spec(model string, prompt, gen int) measure.Spec {
	return measure.Spec{
		Model: model, Prompt: prompt, Gen: gen, Batch: 2048, MicroBatch: 512, Threads: s.Threads, TypeK: "f16", TypeV: "f16",
		FlashAttention: "auto", GPULayers: -1, Repetitions: 1,
	}
}

// rounds visits items in rounds of random order until a time, and returns what each item's visits told, by round. A
// round that is not whole is left out.
func (s *Stage) rounds(ctx context.Context, name string, items []Item, until time.Time) ([][]Visit, error) {
	plan := &Plan{Items: items, Rounds: s.Rounds, Seed: uint64(len(s.Rows) + 1)}
	progress := func(done, all int, next string) {
		s.Progress(fmt.Sprintf("%s: %d of at most %d, %s", name, done, all, next))
	}
	look := s.visit
	if look == nil {
		look = s.one
	}
	c := Conductor{Plan: plan, Dir: s.Dir, Until: until, Progress: progress, visit: look}
	visits, failures, err := c.Run(ctx, nil)
	if err == nil {
		err = FailuresError(failures)
	}
	if err != nil {
		return nil, err
	}
	byItem := make([][]Visit, len(items))
	for _, v := range visits {
		byItem[v.Item] = append(byItem[v.Item], v)
	}
	own := slices.DeleteFunc(visits, func(v Visit) bool { return items[v.Item].Tap.Name == stockName })
	s.Rows = append(s.Rows, Rows(plan, own, s.Environment)...)
	return byItem, nil
}

// one measures an item: with llama-bench where it is its, else in a process of this binary.
func (s *Stage) one(ctx context.Context, item *Item, seed uint64, dir string) (Visit, error) {
	if item.Tap.Name != stockName {
		return visit(ctx, item, seed, dir)
	}
	r := measure.Repetition{}
	for _, test := range stockTests(&item.Spec) {
		ns, err := s.stock(ctx, &item.Spec, test)
		if err != nil {
			return Visit{}, err
		}
		r.NS += ns
		if test.gen > 0 {
			r.TokenNS = []int64{ns}
		} else {
			r.FirstNS = ns
		}
	}
	return Visit{Repetitions: []measure.Repetition{r}}, nil
}

// stockTest is a test of llama-bench's: a prompt or a generation, behind a context of a depth.
type stockTest struct{ prompt, gen, depth int }

// stockTests are the two that a prompt with a generation behind it is compared with.
func stockTests(spec *measure.Spec) (tests []stockTest) {
	if spec.Prompt > 0 {
		tests = append(tests, stockTest{prompt: spec.Prompt, depth: spec.Depth})
	}
	if spec.Gen > 0 {
		tests = append(tests, stockTest{gen: spec.Gen, depth: spec.Depth + spec.Prompt})
	}
	return tests
}

// stock is the time in ns that llama-bench tells of a test.
func (s *Stage) stock(ctx context.Context, spec *measure.Spec, test stockTest) (ns int64, err error) {
	out, _, _, err := run(exec.CommandContext(ctx, s.LlamaBench, "-m", spec.Model, "-t", strconv.Itoa(spec.Threads), "-p", strconv.Itoa(test.prompt),
		"-n", strconv.Itoa(test.gen), "-d", strconv.Itoa(test.depth), "-r", "1", "-o", "json"))
	if err != nil {
		return 0, err
	}
	rows, err := result.Read(bytes.NewReader(out))
	if err != nil || len(rows) != 1 {
		return 0, errors.Join(err, fmt.Errorf("llama-bench told %d results of one test", len(rows)))
	}
	return rows[0].AvgNS, nil
}

// decodeNS and prefillNS are a visit's times of all generated tokens and of the prompt.
func decodeNS(v *Visit) (ns float64) {
	for _, t := range v.Repetitions[0].TokenNS {
		ns += float64(t)
	}
	return ns
}

func prefillNS(v *Visit) float64 { return float64(v.Repetitions[0].FirstNS) }

// each applies f to visits.
func each(visits []Visit, f func(*Visit) float64) []float64 {
	var all []float64
	for i := range visits {
		all = append(all, f(&visits[i]))
	}
	return all
}

// weightsRead is how many bytes of weights a token makes a dense model read: all of its matrices and vectors,
// without the table of embeddings, of which it reads a row, unless that is the output's matrix too.
func weightsRead(path string) (int64, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return 0, err
	}
	size := file.TensorBytes()
	table, there := file.Tensor("token_embd.weight")
	if _, own := file.Tensor("output.weight"); there && own {
		size -= table.Bytes
	}
	return size, nil
}

// Synthesize makes a model with random weights in a folder, where it is not there already. flags are those of
// llamatap synth.
func Synthesize(ctx context.Context, self, path string, flags ...string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"synth", "-o", path, "--quiet"}, flags...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make the benchmark's model %s: %w", filepath.Base(path), err)
	}
	return nil
}

// WriteRows writes what was measured as JSON that bench compare reads.
func (s *Stage) WriteRows(path string) error {
	data, err := json.MarshalIndent(s.Rows, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), fs.FileMode(0o644))
	}
	return err
}
