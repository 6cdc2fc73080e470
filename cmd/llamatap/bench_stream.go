package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/bench/writing"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// runStream measures how fast a recording of the embedded model's activations is written.
func (b *benchTable) runStream(ctx context.Context, share time.Duration) error {
	stage := b.stage
	s := bench.Stream{Dir: stage.Dir, Time: share, Rounds: 6, Table: stage.Table, Progress: stage.Progress}
	tokens := 48
	if b.smoke {
		s.Rounds, tokens = 1, 4
	}
	var err error
	if s.DiskBytes, err = roomFor(s.Dir); err != nil {
		return err
	}
	if s.Residual, s.Others, err = recordPieces(ctx, s.Dir, tokens, stage.Threads); err != nil {
		return err
	}
	return s.Run(ctx)
}

// streamPrompt is some hundred tokens of source text.
var streamPrompt = func() string {
	var b strings.Builder
	for i, name := range []string{"Reverse", "Sum", "Max", "Contains", "Split", "Join", "Fields", "Repeat", "Count", "Index"} {
		fmt.Fprintf(&b, "// %s returns what is left of its %d arguments, or an error where there is none.\nfunc %s(words []string, n int) (string, error) {\n\tif len(words) < %d {\n\t\treturn \"\", errors.New(\"too few\")\n\t}\n}\n\n",
			name, i+1, name, i+2)
	}
	return b.String()
}()

// recordPieces records every tensor of a short run of the embedded model, and reads it.
func recordPieces(ctx context.Context, dir string, tokens, threads int) (residual, others []writing.Piece, err error) {
	self, err := llama.Self()
	if err != nil {
		return nil, nil, err
	}
	out, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(out)
	run := []string{"run", "-p", streamPrompt, "-n", strconv.Itoa(tokens), "--temp", "0", "--ignore-eos",
		"-c", "2048", "--tap-granularity", "full_tensor", "--tap-codec", "none", "--tap-dtype", "f32", "--tap-out", out, "-t", strconv.Itoa(threads), "-tb", strconv.Itoa(threads)}
	if text, err := exec.CommandContext(ctx, self, run...).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("record activations: %w: %s", err, text)
	}
	streams, err := filepath.Glob(filepath.Join(out, "*", "run_*", tensors.StreamName))
	if err != nil || len(streams) != 1 {
		return nil, nil, fmt.Errorf("record activations: %d streams were written, expected one", len(streams))
	}
	return writing.Read(streams[0])
}
