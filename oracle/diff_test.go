//go:build linux

package oracle

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestDiff compares captures of two quantisations of one model with what NumPy computes of the same tensors.
func TestDiff(t *testing.T) {
	var runs []*capture
	for _, form := range []gguf.Type{gguf.F16, gguf.Q8_0} {
		runs = append(runs, record(t, []string{"--tap-tensors", "l_out,Qcur", "--tap-dtype", "f32"},
			"-m", synthetic(t, "llama", form, nil),
			"-p", prompt, "-n", "1", "--temp", "0", "-ub", map[gguf.Type]string{gguf.F16: "512", gguf.Q8_0: "4"}[form]))
	}
	o := llamatap(t, "diff", runs[0].dir, runs[1].dir, "--by", "row").good(t)
	var rows []map[string]any
	for line := range strings.Lines(o.stdout) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	script := `
import json, subprocess, sys, io
import numpy as np
tap, a, b = sys.argv[1:4]
cache = {}
def rows(run, name):
    if (run, name) not in cache:
        cache[run, name] = np.load(io.BytesIO(subprocess.run([tap, "cat", run, "--tensor", name,
            "--format", "npy"], check=True, capture_output=True).stdout)).astype(np.float64)
    return cache[run, name]
printed = [json.loads(line) for line in sys.stdin]
tokens = max(row["token_index"] for row in printed) + 1
for row in printed: # of the last layer there are rows of the last tokens only
    x, y = (rows(run, row["tensor"])[row["token_index"] - tokens].ravel() for run in (a, b))
    d = x - y
    print(json.dumps([float(x @ y / np.linalg.norm(x) / np.linalg.norm(y)), float(np.abs(d).max()),
        float(np.sqrt(np.mean(d * d)))]))
`
	cmd := exec.Command(testenv.NeedPython(t, "numpy"), "-c", script, runs[0].args[0], runs[0].dir, runs[1].dir)
	cmd.Stdin, cmd.Stderr = strings.NewReader(o.stdout), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(rows) == 0 || len(lines) != len(rows) {
		t.Fatalf("%d rows, %d by NumPy", len(rows), len(lines))
	}
	different := 0
	for i, line := range lines {
		var want []float64
		if err := json.Unmarshal([]byte(line), &want); err != nil {
			t.Fatal(err)
		}
		for k, key := range []string{"cosine", "max_abs_diff", "rms_diff"} {
			if got := rows[i][key].(float64); math.Abs(got-want[k]) > 1e-9*math.Max(1, math.Abs(want[k])) {
				t.Errorf("%v, token %v: %s %v, NumPy's %v", rows[i]["tensor"], rows[i]["token_index"], key,
					got, want[k])
			}
		}
		if want[1] > 0 {
			different++
		}
	}
	if different == 0 {
		t.Error("two quantisations differ in nothing: nothing was tested")
	}
	if o := llamatap(t, "diff", runs[0].dir, runs[1].dir, "--fail-if", "max>0"); o.status != 1 ||
		!strings.Contains(o.stderr, "max is") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	llamatap(t, "diff", runs[0].dir, runs[0].dir, "--fail-if", "max>0,cosine<1").good(t)
}
