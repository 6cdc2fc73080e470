//go:build linux

package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	root "github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// exact stores what the tensors held, bit for bit.
var exact = []string{"--tap-codec", "none", "--tap-dtype", "f32"}

// everything captures every computed node, exactly.
var everything = append([]string{"--tap-granularity", "full_tensor"}, exact...)

// An outcome is what a process left.
type outcome struct {
	args           []string
	stdout, stderr string
	status         int
	dirs           []string // run directories
}

// llamatap runs bin/llamatap to its end, recording into a folder of its own.
func llamatap(t *testing.T, args ...string) outcome {
	t.Helper()
	out := t.TempDir()
	return finish(t, command(t, args...), out)
}

// finish runs a command that records below out.
func finish(t *testing.T, cmd *exec.Cmd, out string) outcome {
	t.Helper()
	testenv.NeedPrograms(t, cmd.Args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(cmd.Environ(), "LLAMATAP_OUT="+out)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.Args, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), runDirs(t, out)}
}

// runDirs lists the run directories below out.
func runDirs(t *testing.T, out string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(out, "*", "run_*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// good demands status 0.
func (o outcome) good(t *testing.T) outcome {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("%q: status %d\n%s", o.args, o.status, o.stderr)
	}
	return o
}

// record is "llamatap run", which must succeed and leave one run directory.
func record(t *testing.T, tap []string, args ...string) *capture {
	t.Helper()
	return llamatap(t, slices.Concat([]string{"run"}, tap, args)...).good(t).capture(t)
}

// tapped is "llamatap exec" of one of llama.cpp's tools, which must succeed and leave one run directory.
func tapped(t *testing.T, tap []string, program string, args ...string) *capture {
	t.Helper()
	out := t.TempDir()
	cmd := command(t, slices.Concat([]string{"exec"}, tap, []string{"--", program}, args)...)
	return finish(t, cmd, out).good(t).capture(t)
}

// stock runs a tool without the tap and returns what it printed. llama.cpp's own programs hang at their end once in
// a long while (seen of llama-eval-callback, on a busy machine); such a run says nothing about us and is made
// again.
func stock(t *testing.T, name string, args ...string) (stdout, stderr string) {
	t.Helper()
	for range 3 {
		cmd := testenv.NeedTool(t, name).Command(args...)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		var hung atomic.Bool
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		limit := time.AfterFunc(testenv.Patience(), func() {
			hung.Store(true)
			cmd.Process.Kill()
		})
		err := cmd.Wait()
		if stopped := limit.Stop(); !stopped && hung.Load() {
			t.Logf("%s %q hangs without the tap, and is started again", name, args)
			continue
		}
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, log.String())
		}
		return out.String(), log.String()
	}
	t.Fatalf("%s %q hangs every time", name, args)
	return "", ""
}

// archs are the architectures that models are made of, for the long forms; short ones take a few.
func archs(t *testing.T, short ...string) []string {
	t.Helper()
	if !testenv.Nightly() {
		return short
	}
	return synth.Archs()
}

// attentions are the values of -fa: by day the i-th of several cases has one of the two.
func attentions(i int) []string {
	both := []string{"on", "off"}
	if !testenv.Nightly() {
		return both[i%2 : i%2+1]
	}
	return both
}

// made are the models of this test run.
var made = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: make(map[string]string)}

// synthetic makes a model of two or three layers with random weights, once per test run. change may be nil.
func synthetic(t *testing.T, arch string, typ gguf.Type, change func(*synth.Config)) string {
	t.Helper()
	c, err := synth.New(arch, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Layers, c.Seed, c.Type = 2, 11, typ
	if arch == "jamba" {
		c.Layers = 4
	}
	if change != nil {
		change(&c)
	}
	made.Lock()
	defer made.Unlock()
	key := fmt.Sprintf("%+v", c)
	if path := made.paths[key]; path != "" {
		return path
	}
	donor, err := gguf.ReadBytes(root.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	m, err := synth.Plan(c, &donor.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(made.dir, fmt.Sprintf("%s-%d.gguf", arch, len(made.paths)))
	if err := m.WriteFile(context.Background(), path, nil); err != nil {
		t.Fatal(err)
	}
	made.paths[key] = path
	return path
}

func TestMain(m *testing.M) {
	if path := os.Getenv(sandboxed); path != "" {
		enterSandbox(path)
	}
	// llama.cpp's threads sleep at a barrier. Where they spin, as by default, beside other tests each barrier takes
	// a time slice.
	if !testenv.Nightly() {
		os.Setenv("OMP_WAIT_POLICY", "passive")
		// To touch the pages of 256 MiB, the default, takes a third of a short recording's time.
		os.Setenv("LLAMATAP_MEMORY", "32M")
	}
	// Tests compare the events of executions, so each of them is timed.
	os.Setenv("LLAMATAP_RESOURCE_SAMPLE", "1")
	var err error
	if made.dir, err = os.MkdirTemp("", "llamatap-oracle-"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(made.dir)
	os.Exit(status)
}

// oneLine reports whether text is a single line that contains all words.
func oneLine(text string, words ...string) bool {
	text = strings.TrimSpace(text)
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return text != "" && !strings.Contains(text, "\n")
}

// command is bin/llamatap with arguments.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	testenv.NeedPrograms(t, args...)
	return exec.Command(testenv.NeedBinary(t), args...)
}
