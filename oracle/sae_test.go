//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/autoencoder"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// saeRun records two texts with their residual stream.
func saeRun(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for i, text := range []string{"func main() {\n\tfor i := range 10 {\n\t\tfmt.Println(i)\n\t}\n}\n",
		"package strings\n\n// Index returns the index of the first instance of substr in s.\n"} {
		fmt.Fprintf(&lines, "{\"id\":\"%d\",\"prompt\":%q}\n", i, strings.Repeat(text, 4))
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return llamatap(t, "run", "--prompts", path, "-n", "1", "--temp", "0", "-t", "1", "--tap-point", "resid_post",
		"--tap-dtype", "f32").good(t).dirs[0]
}

// TestSAE trains on a recording, is interrupted and resumed, evaluates, and steers llama.cpp's own program with a
// feature.
func TestSAE(t *testing.T) {
	dir, run := t.TempDir(), saeRun(t)
	train := []string{"sae", "train", run, "--layer", "3", "--features", "96", "--k", "4", "--batch", "32", "--lr",
		"0.01", "-o"}
	path := func(name string) string { return filepath.Join(dir, name) }
	printed := llamatap(t, append(train, path("sae"), "--epochs", "60")...).good(t).stdout
	if !strings.Contains(printed, "explained variance 0.") || !strings.Contains(printed, "GFLOP/s") {
		t.Errorf("printed: %s", printed)
	}
	interruptSAE(t, append(train, path("again"), "--epochs", "60", "--checkpoint-every", "1ms"), path("again"))
	for _, name := range []string{autoencoder.WeightsName, autoencoder.ConfigName} {
		whole, err := os.ReadFile(filepath.Join(path("sae"), name))
		resumed, other := os.ReadFile(filepath.Join(path("again"), name))
		if err != nil || other != nil || !bytes.Equal(whole, resumed) {
			t.Errorf("%s is another one after resuming: %v, %v", name, err, other)
		}
	}
	s, err := autoencoder.Open(path("sae"))
	if err != nil {
		t.Fatal(err)
	}
	var e autoencoder.Evaluation
	text := llamatap(t, "sae", "eval", path("sae"), "--all", "--json").good(t).stdout
	if err := json.Unmarshal([]byte(text), &e); err != nil || len(e.Features) != 96 || e.L0 > 4 ||
		e.ExplainedVariance < 0.5 {
		t.Fatalf("%+v, %v", e, err)
	}
	checkContexts(t, s, &e, run)

	strongest := slices.MaxFunc(e.Features, func(a, b autoencoder.Feature) int { return int(a.Max - b.Max) })
	feature, file := strongest.Number, path("feature.gguf")
	printed = llamatap(t, "sae", "steer", path("sae"), "--feature", fmt.Sprint(feature), "--scale", "6", "-o", file).
		good(t).stdout
	if !strings.Contains(printed, "for layer 3") {
		t.Errorf("printed: %s", printed)
	}
	v, err := gguf.OpenControlVector(file)
	if err != nil || v.Model != "llama" || len(v.Directions) != 1 || math.Abs(v.Norm(3)-6) > 1e-4 {
		t.Fatalf("%+v, %v", v, err)
	}
	steered := func(args ...string) map[int64][]float32 {
		return residualRows(t, tapped(t, append([]string{"--tap-tensor", "l_out-3"}, exact...), "llama-completion",
			append([]string{"-m", testenv.Model(t), "-p", "func Read(", "-n", "1", "--temp", "0", "-t", "1", "-no-cnv"},
				args...)...).dir, 3)
	}
	plain, moved := steered(), steered("--control-vector", file)
	for token, row := range moved {
		for k, x := range row {
			want := float64(plain[token][k]) + 6*float64(s.Direction(feature)[k])
			if math.Abs(float64(x)-want) > 1e-3 {
				t.Fatalf("token %d, channel %d: %v, want %v", token, k, x, want)
			}
		}
	}
	data := path("data")
	llamatap(t, "export", run, "--to", "dataset", "--tensor", "l_out", "--layer", "2-3", "-o", data).good(t)
	llamatap(t, "sae", "train", data, "--tensor", "l_out-3", "--features", "64", "--epochs", "60", "--batch", "32",
		"-o", path("shards")).good(t)
	recorded := llamatap(t, "sae", "eval", path("shards"), run, "--all", "--top", "0").good(t).stdout
	if shards := llamatap(t, "sae", "eval", path("shards"), "--all", "--top", "0").good(t).stdout; shards != recorded {
		t.Errorf("a recording and its dataset are explained in two ways: %s%s", recorded, shards)
	}
	held := t.TempDir()
	lock, err := rundir.Lock(held)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for want, args := range map[string][]string{
		"another training writes there": append(train[1:len(train):len(train)], held),
		"give a finite number other than 0": {"steer", path("sae"), "--feature", "1", "--scale", "nan", "-o",
			path("x")},
		"of length +Inf": {"steer", path("sae"), "--feature", "1", "--scale", "1e39", "-o", path("x")},
		"of length 0":    {"steer", path("sae"), "--feature", "1", "--scale", "0", "-o", path("x")},
		"/dev/full: no space left on device: free space": {"eval", path("sae"), "-o", "/dev/full"},
		"name one with --tensor":                         {"train", data, "--features", "64", "-o", path("x")},
		"give --features":                                {"train", run, "--layer", "3", "-o", path("x")},
		"give the --layer":                               {"train", run, "--features", "64", "-o", path("x")},
		"less than a batch": {"train", run, "--layer", "3", "--features", "64", "--batch", "9999", "-o",
			path("x")},
		"holds an autoencoder already": append(train[1:len(train):len(train)], path("sae")),
		"it is complete":               {"train", "--resume", path("sae")},
		"no sparse autoencoder":        {"eval", run},
		"from 0 to 95":                 {"steer", path("sae"), "--feature", "96", "-o", file},
		"mlp_out is not recorded":      {"train", run, "--point", "mlp_out", "--features", "64", "-o", path("x")},
	} {
		if o := llamatap(t, append([]string{"sae"}, args...)...); o.status == 0 || !strings.Contains(o.stderr, want) ||
			strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%q: %s%s", args, o.stdout, o.stderr)
		}
	}
	if _, err := os.Stat(path("x")); err == nil {
		t.Error("a training that failed leaves its folder")
	}
}

// TestSAEDisk: a training whose files do not fit is refused before it begins, and one that has no room for a second
// checkpoint is completed.
func TestSAEDisk(t *testing.T) {
	disk, run := smallDisk(t, "1m"), saeRun(t)
	folder := filepath.Join(disk, "sae")
	args := []string{"sae", "train", run, "--layer", "3", "--k", "4", "--batch", "32", "--epochs", "20",
		"--checkpoint-every", "1ms", "-o", folder, "--features"}
	o := llamatap(t, append(args, "200")...)
	if _, err := os.Stat(folder); err == nil || o.status != 1 || !oneLine(o.stderr, "free space there", "--features") {
		t.Errorf("status %d, %v: %s", o.status, err, o.stderr)
	}
	o = llamatap(t, append(args, "96")...).good(t)
	if !oneLine(o.stderr, "no checkpoint since step", "no space left") {
		t.Errorf("printed: %s", o.stderr)
	}
	if _, err := autoencoder.Open(folder); err != nil {
		t.Error(err)
	}
}

// interruptSAE trains, interrupts once there is a checkpoint, and resumes.
func interruptSAE(t *testing.T, args []string, folder string) {
	t.Helper()
	cmd := command(t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testenv.Patience()); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(folder, autoencoder.CheckpointName)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there is never a checkpoint")
		}
	}
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	status := cmd.ProcessState.ExitCode()
	if status != 130 || !strings.Contains(stderr.String(), "sae train --resume") {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	llamatap(t, "sae", "train", "--resume", folder).good(t)
}

// checkContexts compares the contexts of features with activations that are computed anew from the weights.
func checkContexts(t *testing.T, s *autoencoder.SAE, e *autoencoder.Evaluation, dir string) {
	t.Helper()
	rows, texts := residualRows(t, dir, 3), map[int64]string{}
	run, err := tensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if _, err := run.EachToken(func(token *tensors.Token) error {
		texts[token.Index] = token.Text
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range e.Features {
		for _, c := range f.Contexts {
			want := float64(s.EncoderBias[f.Number])
			for k, x := range rows[c.TokenIndex] {
				want += float64(s.Encoder[f.Number*s.Width+k]) * (float64(x) - float64(s.DecoderBias[k]))
			}
			if math.Abs(float64(c.Activation)-want) > 1e-4*math.Abs(want)+1e-4 {
				t.Fatalf("feature %d, token %d: %v, want %v", f.Number, c.TokenIndex, c.Activation, want)
			}
			if c.Token != texts[c.TokenIndex] || !strings.HasSuffix(c.Before, texts[c.TokenIndex-1]) &&
				c.Before != "" {
				t.Fatalf("token %d is %q after %q, want %q after %q", c.TokenIndex, c.Token, c.Before,
					texts[c.TokenIndex], texts[c.TokenIndex-1])
			}
			checked++
		}
	}
	if checked < 96 {
		t.Errorf("%d contexts", checked)
	}
}

// TestSAELens has SAELens' own code load autoencoders of each architecture, and encode and decode the rows of a
// recording.
func TestSAELens(t *testing.T) {
	testenv.Slow(t) // PyTorch is large: the set-up of make nightly installs it
	python := testenv.NeedPython(t, "torch", "sae_lens", "numpy")
	dir, run := t.TempDir(), saeRun(t)
	arrays := filepath.Join(dir, "arrays")
	llamatap(t, "export", run, "--to", "npy", "--point", "resid_post", "--layer", "3", "-o", arrays).good(t)
	for _, arch := range autoencoder.Archs {
		t.Run(arch, func(t *testing.T) {
			folder := filepath.Join(dir, arch)
			args := []string{"sae", "train", run, "--layer", "3", "--features", "96", "--arch", arch, "--batch", "32",
				"--epochs", "40", "--lr", "0.005", "-o", folder}
			if arch == autoencoder.TopK {
				args = append(args, "--k", "6")
			}
			llamatap(t, args...).good(t)
			evaluation := filepath.Join(dir, arch+".json")
			llamatap(t, "sae", "eval", folder, "--all", "--contexts", "1000", "--json", "-o", evaluation).good(t)
			out, err := exec.Command(python, "testdata/sae_encode.py", folder, arrays, evaluation).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
			ours := llamatap(t, "sae", "eval", folder, "--all", "--top", "0").good(t).stdout
			theirs := llamatap(t, "sae", "eval", folder+"-saved", run, "--all", "--top", "0").good(t).stdout
			if theirs != ours {
				t.Errorf("a folder that SAELens wrote: %s, want %s", theirs, ours)
			}
		})
	}
}
