//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// startRecording starts a run of its own process group, and returns when its recording holds so many bytes.
func startRecording(t *testing.T, out string, bytes int64, args ...string) *going {
	t.Helper()
	g := &going{cmd: exec.Command(testenv.NeedBinary(t), args...), out: out, exited: make(chan struct{})}
	g.cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.cmd.Stdout, g.cmd.Stderr = &g.stdout, &g.stderr
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.cmd.Wait(); close(g.exited) }()
	t.Cleanup(func() { g.killAll() })
	for g.recorded(t) < bytes {
		select {
		case <-g.exited:
			t.Fatalf("%q ended early: %v\n%s", args, g.cmd.ProcessState, g.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
	return g
}

// killAll kills both processes at once.
func (g *going) killAll() {
	unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
	<-g.exited
}

// answersOf are the results of a prompt file without their times.
func answersOf(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(content(t, path)) {
		var answer map[string]any
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
		for _, times := range []string{"token_ns", "prompt_ns", "generation_ns"} {
			delete(answer, times)
		}
		all = append(all, answer)
	}
	return all
}

// TestResumePrompts kills runs of a prompt file, and demands of those that are resumed the results and the
// stream of one that was not interrupted. No seed is given: each prompt has another one, and the same again.
func TestResumePrompts(t *testing.T) {
	const prompts = 12
	for _, parallel := range testenv.ByDay([]string{"3", "1"}, 1) {
		t.Run("np "+parallel, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, results := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "results.jsonl")
			if err := os.WriteFile(file, []byte(strings.Repeat(`{"prompt":"func main() {"}`+"\n", prompts)),
				0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"run", "--tap-tensors", "l_out*", "--checkpoint-every", "7", "-t", "1", "--temp", "1.5",
				"--ignore-eos", "-n", "80",
				"--prompts", file, "-np", parallel, "--results", results}
			out := t.TempDir()
			startRecording(t, out, 64<<10, args...).killAll()
			for tries := 0; !resumes(t, out) && tries < 10; tries++ { // the run was faster than the test
				out = t.TempDir()
				startRecording(t, out, 64<<10, args...).killAll()
			}
			var once rundir.Checkpoint
			if err := json.Unmarshal(content(t, filepath.Join(dirOf(t, out), "activations.stream"+
				rundir.CheckpointSuffix)), &once); err != nil {
				t.Fatal(err)
			}
			got := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out).good(t).capture(t)
			answers := answersOf(t, results)
			if len(answers) != prompts || reflect.DeepEqual(answers[0]["tokens"], answers[1]["tokens"]) {
				t.Fatalf("%d answers, of equal prompts without a seed: %v", len(answers), answers)
			}
			if once.Run.Seed == 0 {
				t.Fatal("the checkpoint has no seed")
			}
			// An uninterrupted run of the same seed: one that is resumed from its first checkpoint.
			again := t.TempDir()
			startRecording(t, again, 1, args...).killAll()
			seedOf(t, again, once.Run.Seed)
			want := finish(t, command(t, "run", "--tap-resume", dirOf(t, again)), again).good(t).capture(t)
			if !reflect.DeepEqual(answers, answersOf(t, results)) {
				t.Error("the results are others")
			}
			if !bytes.Equal(content(t, filepath.Join(got.dir, "activations.stream")),
				content(t, filepath.Join(want.dir, "activations.stream"))) {
				t.Error("the streams differ")
			}
			samePackets(t, got, want)
		})
	}
}

// seedOf makes a run that was just begun one of another seed, of which nothing is recorded.
func seedOf(t *testing.T, out string, seed uint32) {
	t.Helper()
	path := filepath.Join(dirOf(t, out), "activations.stream"+rundir.CheckpointSuffix)
	c, err := rundir.ReadCheckpoint(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Run.Seed = seed
	c.Run.Synced = json.RawMessage(`{}`)
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
}

// TestResumeRedacted: a checkpoint without arguments has the seed, and the run goes on when they are given. With
// others, with which the program ends earlier, the recording stays, nothing of it is lost, and it can be resumed.
func TestResumeRedacted(t *testing.T) {
	out := t.TempDir()
	args := []string{"run", "--tap-tensors", "l_out*", "--tap-redact", "text", "--checkpoint-every", "3", "-t", "1",
		"-p", "func secret() {", "-n", "400", "--ignore-eos"}
	g := startRecording(t, out, 64<<10, args...)
	path := filepath.Join(dirOf(t, out), "activations.stream"+rundir.CheckpointSuffix)
	testenv.Until(t, "a checkpoint behind the prompt", func() bool {
		c, err := rundir.ReadCheckpoint(path)
		return err == nil && c.TotalTokens > 12
	})
	g.killAll()
	if text := content(t, path); bytes.Contains(text, []byte("secret")) {
		t.Errorf("the checkpoint holds the prompt: %s", text)
	}
	o := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out)
	if o.status == 0 || !strings.Contains(o.stderr, "--tap-redact text") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	o = finish(t, command(t, append(slices.Clone(args), "-n", "1", "--tap-resume", dirOf(t, out))...), out)
	if o.status != 1 || !strings.Contains(o.stderr, "it ended by itself before it had come as far") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	if a := metadata(t, dirOf(t, out)).Account; len(a.Lost) > 0 || a.Selected != a.Captured {
		t.Errorf("account: %+v", a)
	}
	c := finish(t, command(t, append(slices.Clone(args), "--tap-resume", dirOf(t, out))...), out).good(t).capture(t)
	if c.meta.Resumed == nil || c.meta.Resumed.Count != 2 {
		t.Errorf("metadata: %+v", c.meta.Resumed)
	}
	llamatap(t, "verify", c.dir).good(t)
}

// TestResumeTwice: a run that is still recorded is not resumed, and a damaged checkpoint is reported.
func TestResumeTwice(t *testing.T) {
	out := t.TempDir()
	g := startRecording(t, out, 64<<10, "run", "--tap-tensors", "l_out*", "--checkpoint-every", "3", "-t", "1",
		"-p", "a", "-n", "-1", "-c", "4096", "--temp", "0", "--ignore-eos", "--context-shift")
	dir := dirOf(t, out)
	o := finish(t, command(t, "run", "--tap-resume", dir), t.TempDir())
	if o.status == 0 || !strings.Contains(o.stderr, rundir.ErrInUse.Error()) {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	select {
	case <-g.exited:
		t.Errorf("the run has ended: %s", g.stderr.String())
	default:
	}
	g.killAll()
	path := filepath.Join(dir, "activations.stream"+rundir.CheckpointSuffix)
	whole := content(t, path)
	for _, damaged := range []string{"", "{", `{"version":9}`, string(whole[:len(whole)/2])} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		before := content(t, filepath.Join(dir, "activations.stream"))
		o := finish(t, command(t, "run", "--tap-resume", dir), t.TempDir())
		if o.status == 0 || !strings.Contains(o.stderr, "checkpoint ") || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%q: status %d\n%s", damaged, o.status, o.stderr)
		}
		if !bytes.Equal(content(t, filepath.Join(dir, "activations.stream")), before) {
			t.Errorf("%q: the stream was changed", damaged)
		}
	}
}
