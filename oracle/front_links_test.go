//go:build linux

package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestInstallLinks makes links to a llamatap, again, over a stranger's file and in the wrong place.
func TestInstallLinks(t *testing.T) {
	testenv.NeedPrograms(t, "llama-completion", "llama-cli")
	dir := filepath.Join(t.TempDir(), "links")
	bench := filepath.Join(dir, "llama-bench")
	programs, err := filepath.Glob(filepath.Join(testenv.NeedLlama(t), "usr", "bin", "llama-*"))
	if err != nil {
		t.Fatal(err)
	}
	said := llamatap(t, "install-links", dir).good(t).stdout
	made, err := os.ReadDir(dir)
	if err != nil || len(made) != len(programs) || !strings.Contains(said, dir+" is not in PATH") {
		t.Errorf("%d links to %d programs, %v\n%s", len(made), len(programs), err, said)
	}
	if said := llamatap(t, "install-links", dir).good(t).stdout; !strings.Contains(said, ": 0 new") {
		t.Error(said)
	}

	os.Remove(bench)
	os.Remove(filepath.Join(dir, "llama-cli"))
	if err := os.WriteFile(bench, []byte("somebody's own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := llamatap(t, "install-links", dir); o.status != 1 || !oneLine(o.stderr, bench, "--force") ||
		strings.Contains(o.stderr, "llama-server") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	if text, _ := os.ReadFile(bench); string(text) != "somebody's own" {
		t.Errorf("a file was replaced by %q", text)
	}
	if _, err := os.Lstat(filepath.Join(dir, "llama-cli")); err == nil {
		t.Error("one link was made, though not all could be")
	}
	llamatap(t, "install-links", "--force", dir).good(t)
	if to, err := os.Readlink(bench); err != nil || to != testenv.NeedBinary(t) {
		t.Errorf("link to %q, %v", to, err)
	}

	if o := llamatap(t, "install-links", "--force", filepath.Dir(programs[0])); o.status != 1 ||
		!oneLine(o.stderr, "llama.cpp's own") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	if o := llamatap(t, "install-links"); o.status != 2 || !oneLine(o.stderr, "DIR") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
}

// TestLinks: a link is the program that it is named after, also as the first of its name in PATH, and takes the
// tap's flags. (The tap lies beside the binary, not beside the link.)
func TestLinks(t *testing.T) {
	testenv.NeedPrograms(t, "llama-completion", "llama-cli")
	dir := t.TempDir()
	llamatap(t, "install-links", dir).good(t)
	if err := os.Symlink("llama-completion", filepath.Join(dir, "llama-simple-link")); err != nil {
		t.Fatal(err)
	}
	args := []string{"-m", testenv.Model(t), "-t", "1", "-no-cnv", "-p", "func", "-n", "3", "--temp", "0",
		"--log-disable"}
	want := end(t, original(t, "llama-completion", args...))
	for name, tap := range map[string][]string{"plain": nil, "tapped": onTap} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("llama-completion", append(args, tap...)...)
			cmd.Path = filepath.Join(dir, cmd.Args[0])
			cmd.Err = nil
			out := t.TempDir()
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			if tap != nil {
				cmd.Env = append(cmd.Env, "LLAMATAP_OUT="+out)
			} else {
				cmd.Env = append(cmd.Env, "LD_PRELOAD="+testenv.NeedTool(t, "llama-completion").Preload)
			}
			same(t, end(t, cmd), want)
			if n := len(runDirs(t, out)); n != len(tap)/2 {
				t.Errorf("%d run directories", n)
			}
		})
	}
	stray := exec.Command(filepath.Join(dir, "llama-simple-link"))
	said, err := stray.CombinedOutput()
	if err == nil || !oneLine(string(said), `"llama-simple-link"`, "no program of the installed llama.cpp") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestFrontTapErrors: a wrong flag of the tap is reported in one line, and the program is not started.
func TestFrontTapErrors(t *testing.T) {
	for words, args := range map[string][]string{
		"--tap-tensor?":          {"llama-cli", "--tap-tensr", "l_out"},
		"--tap-preset":           {"llama-cli", "-p", "a", "--tap-codec", "lz4"},
		"--tap-layers needs a v": {"llama-bench", "--tap-layers"},
		"llama-nothing":          {"llama-nothing", "--tap-layers", "1"},
	} {
		if o := refused(t, t.TempDir(), args...); o.stdout != "" || !oneLine(o.stderr, words) {
			t.Errorf("%q\n%s%s", args, o.stdout, o.stderr)
		}
	}
}
