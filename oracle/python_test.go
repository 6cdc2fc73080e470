package oracle

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// pythonPackage is a Python that has the package of this checkout, and the program for it to start.
func pythonPackage(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testenv.NeedPython(t, "numpy", "pyarrow"), args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(testenv.Root(t), "python"), "PYTHONDONTWRITEBYTECODE=1",
		"LLAMATAP="+testenv.NeedBinary(t))
	return cmd
}

// TestPythonPackage runs the package's own tests: its arrays are those of cat, its rows the tokens, its tables whole.
func TestPythonPackage(t *testing.T) {
	testenv.NeedTool(t, "llama-batched")
	cmd := pythonPackage(t, "-W", "error", "-m", "unittest", "discover", "-s",
		filepath.Join(testenv.Root(t), "python", "tests"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nOK\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// notebook is the code of all cells of a notebook of the folder python, in order, and how many there are.
func notebook(t *testing.T, name string) (script string, cells int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "python", name))
	if err != nil {
		t.Fatal(err)
	}
	var notebook struct {
		Cells []struct {
			Kind   string   `json:"cell_type"`
			Source []string `json:"source"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(text, &notebook); err != nil {
		t.Fatal(err)
	}
	for _, c := range notebook.Cells {
		if c.Kind == "code" {
			cells++
			script += strings.Join(c.Source, "") + "\n"
		}
	}
	return script, cells
}

// TestNotebook runs the cells of the notebook in order, as Jupyter would, in an empty folder.
func TestNotebook(t *testing.T) {
	script, cells := notebook(t, "quickstart.ipynb")
	cmd := pythonPackage(t, "-W", "error", "-c", script)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil || cells < 5 || len(out) == 0 {
		t.Errorf("%d cells: %v\n%s", cells, err, out)
	}
}
