//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// lastLine is the last line of an error output, which says what went wrong.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestRefused: what cannot be done is reported in one line with cause and remedy, and leaves nothing behind.
func TestRefused(t *testing.T) {
	short := []string{"-p", "func main() {", "-n", "4", "--temp", "0", "-t", "1"}
	for name, test := range map[string]struct {
		tap   []string
		words []string
	}{
		"unknown tensor": {[]string{"--tap-tensors", "l_out,no_such*"}, []string{`"no_such*"`, "l_out",
			"ffn_out", "Qcur"}},
		"little memory": {[]string{"--tap-granularity", "full_tensor", "--tap-memory", "7M"},
			[]string{"--tap-memory", "8M"}},
		"unknown number": {[]string{"--tap-tensors", "Qcur-0#9"}, []string{`"Qcur-0#9"`, "Qcur"}},
		"no such place": {[]string{"--tap-granularity", "attention_only", "--tap-tensors", "l_out"},
			[]string{"attention_only", "l_out", "attn_out", "Qcur"}},
		"unknown layer":    {[]string{"--tap-layers", "3-99"}, []string{"99", "layers"}},
		"unknown codec":    {[]string{"--tap-layers", "1", "--tap-codec", "rar"}, []string{"rar", "zstd"}},
		"unknown preset":   {[]string{"--tap-preset", "turbo"}, []string{"turbo", "balanced"}},
		"tokens backwards": {[]string{"--tap-layers", "1", "--tap-tokens", "9:3"}, []string{"9:3"}},
	} {
		t.Run(name, func(t *testing.T) {
			exec := append([]string{"--", "llama-completion", "-no-cnv", "-m", testenv.Model(t)}, short...)
			for _, args := range [][]string{slices.Concat([]string{"run"}, test.tap, short),
				slices.Concat([]string{"exec"}, test.tap, exec)} {
				out := filepath.Join(t.TempDir(), "out")
				o := llamatapIn(t, out, args...)
				if o.status == 0 || !oneLine(lastLine(o.stderr), test.words...) ||
					!strings.HasPrefix(lastLine(o.stderr), "llamatap: ") {
					t.Errorf("%q: status %d\n%s", args, o.status, o.stderr)
				}
				if left := everythingBelow(t, out); len(left) > 0 {
					t.Errorf("%q left %v", args, left)
				}
			}
		})
	}
}

// TestNothingMatches: a selection that matches nothing ends the program before it computes a token.
func TestNothingMatches(t *testing.T) {
	mamba := synthetic(t, "mamba", gguf.F16, nil)
	for _, tap := range [][]string{
		{"--tap-granularity=attention_only"}, {"--tap-granularity=mlp_only"}, {"--tap-attention"},
		{"--tap-preset=attention_analysis"},
		{"--tap-granularity=attention_only", "--tap-tensors=l_out"}, {"--tap-tensors=Qcur"},
	} {
		for _, program := range [][]string{{"run"}, {"exec", "--", "llama-completion", "-no-cnv"}} {
			args := slices.Concat(program[:1], tap, program[1:], []string{"-m", mamba, "-p", prompt, "-n", "4000",
				"-t", "1", "--ignore-eos"})
			out := filepath.Join(t.TempDir(), "out")
			o := llamatapIn(t, out, args...)
			if o.status != 2 || !oneLine(lastLine(o.stderr), "l_out", "result_output") || o.stdout != "" ||
				len(everythingBelow(t, out)) > 0 {
				t.Errorf("%q: status %d, %d bytes of text\n%s", args, o.status, len(o.stdout), o.stderr)
			}
		}
	}
}

// llamatapIn is llamatap recording into a folder that need not be there.
func llamatapIn(t *testing.T, out string, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	return finish(t, cmd, out)
}

// everythingBelow lists files and run directories below a folder.
func everythingBelow(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || strings.HasPrefix(d.Name(), "run_")) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// TestOnlyModifiers: how to record alone records nothing, and is refused with the flags that do.
func TestOnlyModifiers(t *testing.T) {
	folder := t.TempDir()
	for _, args := range [][]string{
		{"run", "--tap-codec", "lz4", "-p", "a", "-n", "1"}, {"exec", "--tap-memory", "64M", "--tap-overflow", "drop",
			"--", "llama-completion"},
	} {
		o := refused(t, folder, args...)
		if !oneLine(o.stderr, "--tap-preset", "--tap-layer", "--tap-tensor") || o.stdout != "" ||
			len(everythingBelow(t, folder)) > 0 {
			t.Errorf("%q\n%s", args, o.stderr)
		}
	}
}

// refused runs llamatap in a folder, without naming it; it must fail.
func refused(t *testing.T, folder string, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &stdout, &stderr
	if err := cmd.Run(); err == nil {
		t.Errorf("%q succeeds", args)
	}
	return outcome{args: args, stdout: stdout.String(), stderr: stderr.String()}
}

// TestUnwritable: an output folder that is a file is refused before the model is loaded.
func TestUnwritable(t *testing.T) {
	file := textFile(t, "I am no folder")
	o := llamatapIn(t, file, "run", "--tap-layers", "1", "-p", "a", "-n", "2")
	if o.status == 0 || !oneLine(o.stderr, file, "--tap-out") || o.stdout != "" {
		t.Errorf("status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
}
