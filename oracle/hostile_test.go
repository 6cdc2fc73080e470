//go:build linux

package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// mutants is how many files TestHostile makes.
func mutants(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("LLAMATAP_MUTANTS")); err == nil {
		return n
	}
	if testenv.Nightly() {
		return 6000
	}
	return 200
}

// TestHostile: whatever our validator accepts of a damaged or hostile file, llama.cpp loads or refuses; no signal
// ends it.
func TestHostile(t *testing.T) {
	tool := testenv.NeedTool(t, "llama-completion")
	var sources []*mutant
	for _, arch := range []string{"llama", "qwen3moe", "mamba"} {
		sources = append(sources, newMutant(t, synthetic(t, arch, gguf.Q8_0, func(c *synth.Config) { c.Layers = 2 })))
	}
	dir := t.TempDir()
	first := 0
	if n, err := strconv.Atoi(os.Getenv("LLAMATAP_MUTANT_FIRST")); err == nil {
		first = n
	}
	var next atomic.Int64
	var accepted, loaded atomic.Int64
	next.Store(int64(first))
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for n := int(next.Add(1)) - 1; n < first+mutants(t); n = int(next.Add(1)) - 1 {
				path := filepath.Join(dir, fmt.Sprintf("%d.gguf", n))
				what := writeMutant(t, sources, n, path)
				if runner.CheckModel(path) == nil {
					accepted.Add(1)
					status, text := load(t, tool, path)
					if status == 0 {
						loaded.Add(1)
					}
					if status < 0 {
						t.Errorf("mutant %d: %s: llama.cpp %s", n, what, text)
					}
				}
				os.Remove(path)
			}
		})
	}
	wg.Wait()
	t.Logf("%d mutants: %d accepted, of which llama.cpp loaded %d", mutants(t), accepted.Load(), loaded.Load())
	if accepted.Load() == 0 || loaded.Load() == 0 {
		t.Error("nothing was accepted or loaded: the test looks at nothing")
	}
}

// writeMutant makes mutant n: of every source in turn, and the same one for the same number.
func writeMutant(t *testing.T, sources []*mutant, n int, path string) (what string) {
	r := rand.New(rand.NewPCG(uint64(n), 2026))
	m := sources[n%len(sources)].clone()
	var b []byte
	if n%5 == 4 {
		b = m.bytes()
		b, what = flip(r, b, len(b)-len(m.data))
	} else {
		for range 1 + r.IntN(2) {
			m.mutate(r)
		}
		b, what = m.bytes(), strings.Join(m.what, "; ")
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Error(err)
	}
	return what
}

// load lets llama.cpp generate a token and returns its status, -1 when a signal ended it or it hung.
func load(t *testing.T, tool *testenv.Tool, path string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience())
	defer cancel()
	// 8 GiB of addresses: a wrong size must not bring the machine down, and is refused as on a machine without the
	// memory.
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8388608; ulimit -c 0; exec "$@"`, "sh", tool.Path,
		"-m", path, "-p", "a", "-n", "1", "-c", "64", "-t", "1", "--no-warmup", "-no-cnv", "--temp", "0", "-fit", "off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "GGML_NO_BACKTRACE=1")
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, ""
	case ctx.Err() != nil:
		return -1, "hung"
	case !errors.As(err, &exit):
		t.Error(err)
	case exit.Sys().(syscall.WaitStatus).Signaled():
		return -1, fmt.Sprintf("ended by %v: %s", exit.Sys().(syscall.WaitStatus).Signal(), lastWords(out.String()))
	}
	return 1, ""
}

// lastWords is the end of a log.
func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
