//go:build linux

package oracle

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestUnits lets systemd judge the example units, with this program in the place of the installed one, and starts the
// server as its unit does: it answers, and its run is sealed when it is asked to end.
func TestUnits(t *testing.T) {
	testenv.Slow(t)
	judge := testenv.NeedSystemd(t)
	dir := t.TempDir()
	units, err := filepath.Glob(filepath.Join(testenv.Root(t), "examples", "systemd", "*.service"))
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}
	verify := func(change func(string) string) string {
		args := []string{"verify", "--man=no"}
		for _, unit := range units {
			text := strings.ReplaceAll(string(read(t, unit)), "/usr/local/bin/llamatap", testenv.NeedBinary(t))
			path := filepath.Join(dir, filepath.Base(unit))
			if err := os.WriteFile(path, []byte(change(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, path)
		}
		out, err := exec.Command(judge, args...).CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatal(err)
		}
		var said []string
		for line := range strings.Lines(string(out)) { // about other units of the machine it may say what it likes
			if strings.Contains(line, "llama") {
				said = append(said, line)
			}
		}
		return strings.Join(said, "")
	}
	if said := verify(func(text string) string { return text }); said != "" {
		t.Error(said)
	}
	if said := verify(func(text string) string {
		return strings.Replace(text, "Restart=", "Restrat=",
			1)
	}); said == "" {
		t.Error("a misspelt key is accepted")
	}
	for line := range strings.Lines(string(read(t, units[0]))) {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			recordedServer(t, strings.Fields(command))
		}
	}
}

// TestSidecar checks the example manifest against the schemas that Kubernetes publishes, strictly, and starts the
// server as its container does.
func TestSidecar(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "kubernetes_validate", "yaml")
	path := filepath.Join(testenv.Root(t), "examples", "kubernetes", "llama-server.yaml")
	if out, err := exec.Command(python, "-m", "kubernetes_validate", "--strict", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte(strings.Replace(string(read(t, path)), "readinessProbe", "readynessProbe", 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python, "-m", "kubernetes_validate", "--strict", wrong).CombinedOutput(); err == nil {
		t.Errorf("a misspelt key is accepted: %s", out)
	}
	const command = `import sys, yaml
print(*yaml.safe_load(open(sys.argv[1]))["spec"]["template"]["spec"]["containers"][0]["command"], sep="\n")`
	out, err := exec.Command(python, "-c", command, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	recordedServer(t, strings.Fields(string(out)))
}

// recordedServer starts a server by a command line that names folders and files of another machine.
func recordedServer(t *testing.T, line []string) {
	t.Helper()
	out := t.TempDir()
	program := filepath.Join(testenv.NeedLlama(t), "run", "llama-server")
	line[0] = testenv.NeedBinary(t)
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case "/app/llama-server":
			line[i] = program
		case "--model":
			line[i] = "-m"
			line[i+1] = testenv.Model(t)
		case "--tap-out":
			line[i+1] = out
		case "--tap-min-free":
			line[i+1] = "1M"
		case "--host", "--port":
			line = append(line[:i], line[i+2:]...)
			i--
		}
	}
	s := serveBy(t, out, line...)
	s.ask(t, question{prompt: "func main() {", n: 3})
	s.stop()
	dirs := runDirs(t, out)
	if len(dirs) != 1 {
		t.Fatalf("runs %v\n%s", dirs, s.stderr.String())
	}
	llamatap(t, "verify", dirs[0]).good(t)
	if _, err := fs.Stat(os.DirFS(dirs[0]), "requests.parquet"); err != nil {
		t.Error(err)
	}
}
