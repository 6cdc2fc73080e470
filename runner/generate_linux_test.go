//go:build llama

package runner_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// lowest is the nice value of threads that run when nobody else wants to.
const lowest = "19"

// niceOf is the nice value of each thread of this process.
func niceOf(t *testing.T) map[string]string {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	nice := map[string]string{}
	for _, thread := range threads {
		stat, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		nice[thread.Name()] = strings.Fields(fields)[16]
	}
	return nice
}

func short() runner.Options {
	cfg := config.NewRun()
	cfg.Prompt, cfg.Predict, cfg.Temperature, cfg.Threads = "func main() {", 6, 0, 1
	return runner.Options{Config: cfg}
}

// TestGenerate: every layer's output of every token that the model computes is handed over, twice in one process,
// the text is that of Run, and no thread but the one that hands over has another priority.
func TestGenerate(t *testing.T) {
	var want strings.Builder
	o := short()
	o.Stdout = &want
	if _, err := runner.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := niceOf(t)
	// As under nice -n 19, nothing sets the threads of this process apart.
	apart := before[strconv.Itoa(os.Getpid())] != lowest
	for range 2 {
		var got strings.Builder
		o.Stdout = &got
		tokens, others := map[string]int{}, 0
		_, err := runner.Generate(t.Context(), o,
			runner.Capture{Tensors: []string{"l_out"}, OnTensor: func(x *runner.Tensor) error {
				if tokens[x.Name] += x.Tokens; len(x.Values) != x.Tokens*256 || x.Shape[0] != 256 {
					t.Errorf("%+v", x)
				}
				others = 0
				for thread, nice := range niceOf(t) {
					was, known := before[thread]
					if nice != was && (known || apart && nice == lowest) {
						others++
					}
				}
				return nil
			}})
		if err != nil || got.String() != want.String() {
			t.Errorf("%v: text %q, of Run %q", err, got.String(), want.String())
		}
		if others > 1 {
			t.Errorf("%d threads have another priority", others)
		}
		// of the prompt the last one computes one row
		for layer, n := range map[string]int{"l_out-0": 6 + 5, "l_out-5": 1 + 5} {
			if tokens[layer] != n {
				t.Errorf("%d tokens of %s, want %d", tokens[layer], layer, n)
			}
		}
		testenv.Until(t, "no thread is left with another priority", func() bool {
			for thread, nice := range niceOf(t) {
				if apart && nice == lowest && nice != before[thread] {
					return false
				}
			}
			return true
		})
	}
}

// TestGenerateEnds: an error of OnTensor ends the generation, and a name that no tensor has is one.
func TestGenerateEnds(t *testing.T) {
	enough := errors.New("enough")
	n := 0
	_, err := runner.Generate(t.Context(), short(), runner.Capture{OnTensor: func(*runner.Tensor) error {
		if n++; n == 100 {
			return enough
		}
		return nil
	}})
	if !errors.Is(err, enough) || n != 100 {
		t.Errorf("%v after %d tensors", err, n)
	}
	_, err = runner.Generate(t.Context(), short(),
		runner.Capture{Tensors: []string{"nothing_such"}, OnTensor: func(*runner.Tensor) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "nothing_such") {
		t.Errorf("a tensor that there is not: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = runner.Generate(ctx, short(),
		runner.Capture{OnTensor: func(*runner.Tensor) error { return nil }}); !errors.Is(err, runner.ErrInterrupted) {
		t.Errorf("a context that has ended: %v", err)
	}
}
