//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// resumable are runs with every sampler that has a state of its own.
var resumable = []struct {
	name string
	args []string
}{
	{"greedy", []string{"--temp", "0"}},
	{"default chain", []string{"-s", "5"}},
	{"every sampler", []string{"-s", "6", "--samplers",
		"penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "--repeat-penalty", "1.1",
		"--dry-multiplier", "0.8", "--top-nsigma", "2", "--typical", "0.9", "--xtc-probability", "0.5",
		"--xtc-threshold", "0.05", "--dynatemp-range", "0.3"}},
	{"mirostat", []string{"-s", "7", "--mirostat", "1", "--mirostat-ent", "3"}},
	{"mirostat 2", []string{"-s", "8", "--mirostat", "2", "--mirostat-ent", "2.5"}},
	{"adaptive-p", []string{"-s", "9", "--samplers", "adaptive_p;min_p", "--adaptive-target", "0.4",
		"--adaptive-decay", "0.8"}},
	{"grammar", []string{"-s", "10", "--grammar", `root ::= [a-z\n\t ]+`}},
	{"infill", []string{"-s", "11", "--samplers", "top_k;infill"}},
}

// whole is what an uninterrupted run leaves.
type whole struct {
	text   string
	stream []byte
	c      *capture
	state  bool // is kept
}

func resumeArgs(args []string, tokens int) []string {
	return slices.Concat([]string{"run", "--tap-tensors", "l_out*,attn_norm", "--tap-point", "mlp_act",
		"--checkpoint-every", "3", "-t", "1", "-p", "func main() {", "-n", fmt.Sprint(tokens), "--ignore-eos"}, args)
}

// TestResume kills runs at random moments, two of three by kill -9, and demands that each, repaired, is a
// beginning, and, resumed, leaves the text, the stream and the tokens of a run that was not interrupted.
func TestResume(t *testing.T) {
	rounds, tokens := 8, 24 // each sampler once, each way to be killed twice, a run killed twice
	if testenv.Nightly() {
		rounds, tokens = 312, 64
	}
	baselines := map[string]*whole{}
	var killed atomic.Int64
	t.Cleanup(func() { // when all rounds are over
		if n := int(killed.Load()); n < rounds/2 {
			t.Errorf("%d of %d runs were interrupted: the others were faster", n, rounds)
		}
	})
	for i := range rounds {
		c := &resumable[i%len(resumable)]
		args := resumeArgs(c.args, tokens)
		if baselines[c.name] == nil {
			o := llamatap(t, args...).good(t)
			w := &whole{text: o.stdout, c: o.capture(t)}
			w.stream = content(t, filepath.Join(w.c.dir, "activations.stream"))
			baselines[c.name] = w
			if left, _ := filepath.Glob(filepath.Join(w.c.dir, "*"+rundir.CheckpointSuffix)); left != nil {
				t.Errorf("%s: a run that ended by itself leaves %v", c.name, left)
			}
		}
		t.Run(fmt.Sprintf("%d %s", i, c.name), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 99))
			places := make([]int, 1+i%5/4)
			for d := range places {
				places[d] = r.IntN(len(baselines[c.name].text))
			}
			if interrupted(t, baselines[c.name], args, i, places...) {
				killed.Add(1)
			}
		})
	}
}

// TestResumeEveryToken kills a run of 64 tokens at every token, with every sampler, and with its state kept where
// that can be.
func TestResumeEveryToken(t *testing.T) {
	testenv.Slow(t)
	const tokens = 64
	for _, c := range resumable {
		for _, state := range []bool{false, true} {
			args := resumeArgs(c.args, tokens)
			if state {
				if args = append(args, "--checkpoint-state"); slices.Contains([]string{"mirostat", "mirostat 2",
					"adaptive-p"}, c.name) {
					continue
				}
			}
			o := llamatap(t, args...).good(t)
			w := &whole{text: o.stdout, c: o.capture(t), state: state}
			w.stream = content(t, filepath.Join(w.c.dir, "activations.stream"))
			killed, at := 0, 0
			for _, token := range w.c.tokens {
				if token.Phase != "decode" {
					continue
				}
				t.Run(fmt.Sprintf("%s, state %v, token %d", c.name, state, token.Index), func(t *testing.T) {
					if interrupted(t, w, args, int(token.Index), at) {
						killed++
					}
				})
				at = min(at+len(token.Text), len(w.text))
			}
			if killed < tokens/2 && len(w.c.tokens) > tokens/2 {
				t.Errorf("%s: %d runs were interrupted: the others were faster", c.name, killed)
			}
		}
	}
}

// interrupted kills a run when its text has the lengths in places, resumes it each time, and compares.
// It reports whether the run was killed before its end.
func interrupted(t *testing.T, want *whole, args []string, round int, places ...int) bool {
	out := t.TempDir()
	for death, place := range places {
		if death > 0 {
			args = []string{"run", "--resume", dirOf(t, out)}
		}
		killWhen(t, out, args, place, (round+death)%3)
		if len(runDirs(t, out)) == 0 || !resumes(t, out) {
			return false // it ended, or nothing was recorded yet
		}
		if death == 0 {
			repairs(t, dirOf(t, out), want)
		}
	}
	got := finish(t, command(t, "run", "--tap-resume", dirOf(t, out)), out).good(t)
	if got.stdout != want.text {
		t.Errorf("the text is\n%q, and without interruption\n%q", got.stdout, want.text)
	}
	c := got.capture(t)
	if !bytes.Equal(content(t, filepath.Join(c.dir, "activations.stream")), want.stream) {
		t.Error("the stream is not that of a run without interruption")
	}
	if !slices.EqualFunc(c.tokens, want.c.tokens, func(a, b rundir.TokenRecord) bool {
		return fmt.Sprintf("%+v", timeless(a)) == fmt.Sprintf("%+v", timeless(b))
	}) {
		t.Error("the tokens are not those of a run without interruption")
	}
	if points := "points"; !bytes.Equal(c.meta.Extra[points], want.c.meta.Extra[points]) ||
		len(c.meta.Extra[points]) == 0 {
		t.Errorf("the points are %s, without interruption %s", c.meta.Extra[points], want.c.meta.Extra[points])
	}
	if want.state { // the program may have begun in the middle, where its graphs have other numbers
		sameRun(t, c, want.c)
	} else {
		samePackets(t, c, want.c)
	}
	if c.meta.Resumed == nil || c.meta.Resumed.Count < 1 || c.meta.Lossy {
		t.Errorf("metadata: %+v, lossy %v", c.meta.Resumed, c.meta.Lossy)
	}
	llamatap(t, "verify", c.dir).good(t)
	if left, err := filepath.Glob(filepath.Join(c.dir, ".*")); err != nil || len(left) > 0 || resumes(t, out) {
		t.Errorf("left in the run directory: %q, %v; a checkpoint: %v", left, err, resumes(t, out))
	}
	if left, err := filepath.Glob(filepath.Join(out, ".state-*")); err != nil || len(left) > 0 {
		t.Errorf("left in the output folder: %q, %v", left, err)
	}
	return true
}

// timeless is a token without pointers.
func timeless(r rundir.TokenRecord) string {
	text := fmt.Sprint(r.Index, r.ID, r.Text, r.Phase, r.Pos, r.Ctx)
	if r.Seq != nil {
		text += fmt.Sprint(" seq ", *r.Seq)
	}
	if r.Request != nil {
		text += fmt.Sprint(" request ", *r.Request)
	}
	return text
}

// samePackets compares the indices without their times.
func samePackets(t *testing.T, got, want *capture) {
	t.Helper()
	untimed := func(packets []stream.Packet) []stream.Packet {
		packets = slices.Clone(packets)
		for i := range packets {
			packets[i].TimeNS, packets[i].MonoNS = 0, 0
		}
		return packets
	}
	if !slices.Equal(untimed(got.packets), untimed(want.packets)) {
		t.Errorf("%d packets, %d without interruption, or others", len(got.packets), len(want.packets))
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func dirOf(t *testing.T, out string) string {
	t.Helper()
	dirs := runDirs(t, out)
	if len(dirs) != 1 {
		t.Fatalf("%d run directories, want 1", len(dirs))
	}
	return dirs[0]
}

// resumes reports whether the run has a checkpoint.
func resumes(t *testing.T, out string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dirOf(t, out), "activations.stream"+rundir.CheckpointSuffix))
	return err == nil
}

// killWhen starts a run and kills it when it has written so many bytes: its model, model and collector, or both by
// Ctrl-C.
func killWhen(t *testing.T, out string, args []string, size, how int) {
	t.Helper()
	g := &going{cmd: exec.Command(testenv.NeedBinary(t), args...), out: out, exited: make(chan struct{})}
	g.cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.cmd.Stderr = &g.stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g.cmd.Stdout = write
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	var reading sync.WaitGroup
	reached := make(chan struct{})
	reading.Go(func() {
		io.CopyN(io.Discard, read, int64(size))
		close(reached)
		io.Copy(io.Discard, read)
		read.Close()
	})
	<-reached
	switch how {
	case 0:
		for _, pid := range g.children() {
			unix.Kill(pid, unix.SIGKILL)
		}
	case 1:
		unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
	case 2:
		unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	}
	g.cmd.Wait()
	reading.Wait()
}

// A run is not resumed as another one.
func TestResumeRefusals(t *testing.T) {
	out := t.TempDir()
	args := resumeArgs([]string{"--temp", "0"}, 200)
	killWhen(t, out, args, 40, 0)
	dir := dirOf(t, out)
	checkpoint := filepath.Join(dir, "activations.stream"+rundir.CheckpointSuffix)
	replaced := func(old, new string) []string {
		with := slices.Clone(args)
		for i := range with {
			if with[i] == old {
				with[i] = new
			}
		}
		return append(with, "--tap-resume="+dir)
	}
	other := filepath.Join(t.TempDir(), "other.gguf")
	llamatap(t, "synth", "-o", other, "--params", "tiny").good(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{replaced("200", "100"), []string{"Predict", "200", "100"}},
		{replaced("l_out*,attn_norm", "l_out*"), []string{"tensors", "l_out*,attn_norm"}},
		{append(replaced("", ""), "-m", other), []string{"model"}},
		{append(replaced("", ""), "--tap-codec=zstd", "--temp", "1"),
			[]string{"codec", "lz4", "zstd", "Sampling.Temperature"}},
		{[]string{"run", "--tap-resume", filepath.Join(out, "nothing")}, []string{filepath.Join(out, "nothing")}},
		{[]string{"run", "--tap-resume", out}, []string{out, "checkpoint"}},
		{[]string{"run", "-p", "x", "--tap-resume", dir}, []string{"resume", "all"}},
		{[]string{"llama-completion", "-p", "x", "--tap-layers=0", "--tap-resume", dir}, []string{"llamatap run"}},
	} {
		o := finish(t, command(t, c.args...), t.TempDir())
		if o.status == 0 || !oneLine(o.stderr, c.want...) {
			t.Errorf("%q: status %d\n%s, want %q", c.args[1:], o.status, o.stderr, c.want)
		}
	}
	if _, err := os.Stat(checkpoint); err != nil {
		t.Fatal(err)
	}
	finish(t, command(t, replaced("", "")...), out).good(t) // the same arguments resume it
	o := finish(t, command(t, "run", "--tap-resume", dir), out)
	if o.status == 0 || !oneLine(o.stderr, dir, "checkpoint") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
}

// A program that does something else than what was recorded of it, here because its prompt comes from another
// standard input, is stopped, and the recording stays as it is.
func TestResumeOfAnother(t *testing.T) {
	testenv.Slow(t)
	out := t.TempDir()
	args := []string{"run", "--tap-tensors", "l_out*", "--checkpoint-every", "3", "-n", "300", "--temp", "0",
		"--ignore-eos", "-f"}
	first, second := filepath.Join(out, "a.txt"), "for {"
	if err := os.WriteFile(first, []byte("func main() {"), 0o600); err != nil {
		t.Fatal(err)
	}
	killWhen(t, out, append(args, first), 60, 0)
	dir := dirOf(t, out)
	before := content(t, filepath.Join(dir, "activations.stream"))
	if err := os.WriteFile(first, []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	o := finish(t, command(t, "run", "--tap-resume", dir), out)
	if o.status == 0 || !strings.Contains(o.stderr, "does not do what was recorded of it") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	if after := content(t, filepath.Join(dir, "activations.stream")); len(after) == 0 ||
		!bytes.HasPrefix(before, after) {
		t.Errorf("%d bytes of the stream, %d before", len(after), len(before))
	}
	if err := os.WriteFile(first, []byte("func main() {"), 0o600); err != nil {
		t.Fatal(err)
	}
	finish(t, command(t, "run", "--tap-resume", dir), out).good(t)
	llamatap(t, "verify", dir).good(t)
}
