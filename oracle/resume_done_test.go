//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// promptFile writes lines of several lengths, of which the third is wrong.
func promptFile(t *testing.T, dir string, lines int) string {
	t.Helper()
	var text strings.Builder
	for i := range lines {
		if i == 2 {
			text.WriteString("{\"promt\":\"wrong\"}\n")
			continue
		}
		fmt.Fprintf(&text, "{\"id\":%d,\"prompt\":\"func main() {%s\"}\n", i, strings.Repeat(" x", i%5))
	}
	path := filepath.Join(dir, "prompts.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// killAtToken starts a run and kills it when a checkpoint holds so many tokens. A run that is faster than its
// checkpoints is begun again.
func killAtToken(t *testing.T, out string, tokens int64, args ...string) {
	t.Helper()
	for range 20 {
		g := startRecording(t, out, 0, args...)
		killed := g.killedAt(t, tokens)
		g.killAll()
		if killed && resumes(t, out) {
			return
		}
		for _, dir := range runDirs(t, out) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("%q was faster each time", args)
}

// killedAt kills a run when its checkpoint holds so many tokens; false: it has ended before.
func (g *going) killedAt(t *testing.T, tokens int64) bool {
	for {
		for _, dir := range runDirs(t, g.out) {
			if c, err := rundir.ReadCheckpoint(filepath.Join(dir, "activations.stream"+
				rundir.CheckpointSuffix)); err == nil && c.TotalTokens >= tokens {
				unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
				return true
			}
		}
		select {
		case <-g.exited:
			return false
		case <-time.After(time.Millisecond):
		}
	}
}

// TestResumeDone: prompts of a file that are done are not computed again, and nothing of a run shows that, but its
// metadata.
func TestResumeDone(t *testing.T) {
	const lines, chosen = 9, 60
	for _, c := range testenv.ByDay([]struct {
		name    string
		args    []string
		skipped bool
	}{
		{"layers", []string{"--tap-tensors", "l_out*,kqv_out*", "--temp", "1.2"}, true},
		{"range", []string{"--tap-tensors", "l_out*", "--tap-tokens", "85:470", "--temp", "0"}, true},
		{"sample", []string{"--tap-tensors", "l_out*", "--tap-granularity", "sampled_slices",
			"--tap-sampling-rate", "0.1", "--temp", "0"}, true},
		{"cells of the prompts before", []string{"--tap-tensors", "kq-*", "-fa", "off", "--temp", "0"}, false},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			results := filepath.Join(dir, "results.jsonl")
			args := slices.Concat([]string{"run", "--checkpoint-every", "9", "-t", "1", "-s", "4", "--ignore-eos",
				"-n", fmt.Sprint(chosen),
				"--prompts", promptFile(t, dir, lines), "--results", results}, c.args)
			o := llamatap(t, args...)
			if o.status != 1 {
				t.Fatalf("status %d with a wrong line\n%s", o.status, o.stderr)
			}
			want, answers := o.capture(t), answersOf(t, results)
			out := t.TempDir()
			killAtToken(t, out, 215, args...)
			o = finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out)
			if o.status != 1 || !strings.Contains(o.stderr, "1 of 9 prompts failed") {
				t.Fatalf("status %d with a wrong line\n%s", o.status, o.stderr)
			}
			got := o.capture(t)
			sameRun(t, got, want)
			if !reflect.DeepEqual(answers, answersOf(t, results)) {
				t.Error("the results are others")
			}
			if n := got.meta.Resumed.NotComputed; (n > 0) != c.skipped {
				t.Errorf("%d tokens were not computed again\n%s", n, o.stderr)
			}
			llamatap(t, "verify", got.dir).good(t)
			for want := 2; want <= 3; want++ { // nothing is left to record, and so there is no new checkpoint
				got := finish(t, command(t, "run", "--tap-resume", got.dir), out).capture(t)
				if n := got.meta.Resumed.Count; n != want {
					t.Errorf("resumed %d times, want %d", n, want)
				}
				if u := got.meta.Account.Time; u.TapNS+u.WaitNS > u.WallNS {
					t.Errorf("more was waited than the run took: %+v", u)
				}
			}
		})
	}
}

// sameRun demands that a resumed run equals one that was not interrupted, but for times and the numbers
// of graphs.
func sameRun(t *testing.T, got, want *capture) {
	t.Helper()
	if !bytes.Equal(content(t, filepath.Join(got.dir, "activations.stream")),
		content(t, filepath.Join(want.dir, "activations.stream"))) {
		t.Error("the streams differ")
	}
	for _, c := range []*capture{got, want} {
		for i := range c.packets {
			c.packets[i].Graph = 0
		}
	}
	samePackets(t, got, want)
	if !slices.EqualFunc(got.tokens, want.tokens,
		func(a, b rundir.TokenRecord) bool { return timeless(a) == timeless(b) }) {
		t.Error("the tokens differ")
	}
	a, b := *got.meta.Tokens, *want.meta.Tokens
	if a.Setup, b.Setup = 0, 0; a != b { // a program that begins in the middle warms nothing up
		t.Errorf("tokens in the metadata: %+v, without interruption %+v", got.meta.Tokens, want.meta.Tokens)
	}
}

// TestResumeDoneOfOthers: prompts or results that are not those of the run are reported, and destroy nothing; without
// results all is computed.
func TestResumeDoneOfOthers(t *testing.T) {
	testenv.Slow(t)
	dir, out := t.TempDir(), t.TempDir()
	prompts, results := promptFile(t, dir, 9), filepath.Join(dir, "results.jsonl")
	args := []string{"run", "--tap-tensors", "l_out*", "--checkpoint-every", "9", "-t", "1", "--temp", "0",
		"--ignore-eos", "-n", "150",
		"--prompts", prompts, "--results", results}
	killAtToken(t, out, 500, args...)
	text, before := content(t, prompts), content(t, results)
	if err := os.WriteFile(prompts, bytes.Replace(text, []byte("main"), []byte("mine"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	o := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out)
	if o.status == 0 || !strings.Contains(o.stderr, prompts) {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	if !bytes.Equal(content(t, results), before) {
		t.Error("the results were changed")
	}
	if err := os.WriteFile(prompts, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The result of another prompt: it and those behind it are computed again, and take its place.
	lines := bytes.SplitAfter(before, []byte("\n"))
	if err := os.WriteFile(results, slices.Concat(lines[1], lines[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	o = finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out)
	if got := o.capture(t); o.status != 1 || got.meta.Resumed.NotComputed != 0 || len(answersOf(t, results)) != 9 {
		t.Errorf("status %d, %+v\n%s", o.status, got.meta.Resumed, o.stderr)
	}
	if after := answersOf(t, results); after[0]["line"] != 1.0 || after[8]["line"] != 9.0 {
		t.Errorf("%v", after)
	}
}
