//go:build linux

package oracle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestResumeState: a run that keeps its state is resumed from it, computes nothing again, and is the run that
// was not interrupted: the same text, stream and tokens, with every sampler that draws.
func TestResumeState(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"greedy", []string{"--temp", "0", "-fa", "off", "--tap-tensors", "*"}},
		{"every sampler", []string{"-s", "6", "--tap-tensors", "l_out*",
			"--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
			"--repeat-penalty", "1.1", "--dry-multiplier", "0.8", "--top-nsigma", "2", "--typical", "0.9",
			"--xtc-probability", "0.5",
			"--xtc-threshold", "0.05", "--dynatemp-range", "0.3", "--temp", "1.5"}},
		{"grammar", []string{"-s", "10", "--temp", "2", "--tap-tensors", "l_out*", "--tap-tokens", "every:3",
			"--grammar", `root ::= [a-z\n\t ]+`}},
		{"default chain", []string{"-s", "11", "--tap-tensors", "l_out*", "--tap-tokens", "30:80",
			"-r", "nothing such"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"run", "--checkpoint-every", "5", "--checkpoint-state", "-t", "1",
				"-p", "func main() {", "-n", "100", "--ignore-eos"}, c.args...)
			whole := llamatap(t, args...).good(t)
			out := t.TempDir()
			killAtToken(t, out, 40, args...)
			dir := dirOf(t, out)
			states := rundir.States(filepath.Join(dir, rundir.StateFolder))
			got := finish(t, command(t, "run", "--tap-resume", dir), out).good(t)
			if got.stdout != whole.stdout {
				t.Errorf("the text is\n%q, and without interruption\n%q", got.stdout, whole.stdout)
			}
			run := got.capture(t)
			sameRun(t, run, whole.capture(t))
			if n := run.meta.Resumed.NotComputed; n < 20 || !slices.Contains(states, n) {
				t.Errorf("%d tokens were not computed again, states are of %v\n%s", n, states, got.stderr)
			}
			if _, err := os.Stat(filepath.Join(dir, rundir.StateFolder)); !os.IsNotExist(err) {
				t.Errorf("a run that has ended by itself keeps its state: %v", err)
			}
			llamatap(t, "verify", dir).good(t)
		})
	}
}

// TestResumeWrittenSetup: where the memory is too small for a warm-up to wait in until it is known for one, it is
// in the stream, of every run of this model with this memory, and what is resumed, from a state or by
// computing again, passes over it, its requests included.
func TestResumeWrittenSetup(t *testing.T) {
	testenv.Slow(t)
	model := filepath.Join(t.TempDir(), "layers.gguf")
	llamatap(t, "synth", "-o", model, "--params", "6m", "--layers", "32").good(t)
	args := []string{"run", "-m", model, "--tap-memory", "8MiB", "--tap-tensors", "*", "-fa", "off",
		"--checkpoint-every", "5", "-t", "1", "-p", "func main() {",
		"-n", "50", "--ignore-eos", "--temp", "0"}
	whole := llamatap(t, args...).good(t)
	w := whole.capture(t)
	if setup := slices.IndexFunc(w.packets,
		func(p stream.Packet) bool { return p.Phase == ggmlhooks.PhaseSetup }); setup != 0 {
		t.Fatalf("the first packet of set-up is number %d: nothing of this test holds", setup)
	}
	for _, state := range []bool{false, true} {
		args := args
		if state {
			args = append(slices.Clone(args), "--checkpoint-state")
		}
		out := t.TempDir()
		killAtToken(t, out, 30, args...)
		got := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out).good(t)
		if got.stdout != whole.stdout {
			t.Errorf("state %v: the text is\n%q, and without interruption\n%q", state, got.stdout, whole.stdout)
		}
		run := got.capture(t)
		sameRun(t, run, w)
		if n := run.meta.Resumed.NotComputed; (n > 0) != state {
			t.Errorf("state %v: %d tokens were not computed again", state, n)
		}
		llamatap(t, "verify", dirOf(t, out)).good(t)
	}
}

// TestResumeStateDamaged: a state that is damaged, or whose tokens are not all recorded, is passed over for an
// older one, or the beginning.
func TestResumeStateDamaged(t *testing.T) {
	args := []string{"run", "--checkpoint-every", "5", "--checkpoint-state", "--tap-tensors", "l_out*", "-t", "1",
		"-s", "3", "-p", "func main() {", "-n", "100", "--ignore-eos"}
	whole := llamatap(t, args...).good(t)
	for _, all := range []bool{false, true} {
		out := t.TempDir()
		killAtToken(t, out, 40, args...)
		folder := filepath.Join(dirOf(t, out), rundir.StateFolder)
		states := rundir.States(folder)
		for i, tokens := range states {
			if i > 0 && !all {
				break
			}
			_, memory := rundir.StatePaths(folder, tokens)
			damaged := content(t, memory)
			damaged[len(damaged)/2] ^= 1
			if err := os.WriteFile(memory, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out).good(t)
		run := got.capture(t)
		sameRun(t, run, whole.capture(t))
		if n := run.meta.Resumed.NotComputed; got.stdout != whole.stdout || all && n != 0 || n == states[0] {
			t.Errorf("%d tokens were not computed again, of states of %v", n, states)
		}
	}
}

// TestResumeStateInterrupted: Ctrl-C leaves a sealed run that can be read and resumed.
func TestResumeStateInterrupted(t *testing.T) {
	testenv.Slow(t)
	out := t.TempDir()
	args := []string{"run", "--checkpoint-every", "5", "--checkpoint-state", "--tap-tensors", "l_out*", "-t", "1",
		"-s", "3", "-p", "func main() {", "-n", "300", "--ignore-eos"}
	killWhen(t, out, args, 200, 2)
	llamatap(t, "verify", dirOf(t, out)).good(t)
	whole := llamatap(t, args...).good(t)
	got := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out).good(t)
	sameRun(t, got.capture(t), whole.capture(t))
	if got.stdout != whole.stdout || got.capture(t).meta.Resumed.NotComputed == 0 {
		t.Errorf("%q, without interruption %q; %+v", got.stdout, whole.stdout, got.capture(t).meta.Resumed)
	}
}

// TestStateRefusals: what cannot be resumed from a state is reported before anything is computed.
func TestStateRefusals(t *testing.T) {
	testenv.NeedBinary(t)
	run := []string{"run", "--tap-tensors", "l_out*", "--checkpoint-every", "5", "--checkpoint-state",
		"-p", "a", "-n", "4"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(slices.Clone(run), "--mirostat", "2"), "run without --tap-checkpoint-state"},
		{append(slices.Clone(run), "--samplers", "adaptive_p"), "run without --tap-checkpoint-state"},
		{append(slices.Clone(run), "--prompt-cache", filepath.Join(t.TempDir(), "cache")),
			"run without --tap-checkpoint-state"},
		{[]string{"run", "--tap-tensors", "l_out*", "--checkpoint-state", "-p", "a"}, "add --tap-checkpoint-every N"},
		{[]string{"run", "--tap-tensors", "l_out*", "--checkpoint-every", "5", "--checkpoint-state", "--prompts", "-"},
			"for one prompt: leave it out"},
		{[]string{"llama-completion", "-p", "x", "--tap-layers=0", "--tap-checkpoint-every=4",
			"--tap-checkpoint-state"}, "only that of llamatap run is"},
	} {
		out := t.TempDir()
		o := finish(t, command(t, c.args...), out)
		if o.status == 0 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: status %d\n%s, want %s", c.args, o.status, o.stderr, c.want)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("%q leaves %v", c.args, fmt.Sprint(left))
		}
	}
}
