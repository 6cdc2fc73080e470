//go:build linux

package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestMRMOfAForeignProgram makes an experiment of llama.cpp's own llama-completion, as of any program: it writes
// what it writes by itself, its cells are sealed with samples of the mapped model, and analysed and put together as
// others are.
func TestMRMOfAForeignProgram(t *testing.T) {
	testenv.NeedRoot(t)
	program, folder, model := testenv.NeedBinary(t), t.TempDir(), testenv.Model(t)
	tool := testenv.NeedTool(t, "llama-completion")
	words := tool.Command("-m", "{model}", "-p", "{prompt}", "-n", "{max_tokens}", "-c", "{n_ctx}",
		"-ctk", "{kv_type_k}", "-s", "{seed}", "-t", "1", "--temp", "0", "-no-cnv", "--no-display-prompt").Args
	config := fmt.Sprintf("experiment: {name: foreign, repetitions: 1}\nmodel: {path: %q}\nengine:\n  type: command\n"+
		"  n_ctx: 256\n  kv_type: [f16, q8_0]\n  command: [\"%s\"]\n", model, strings.Join(words, `", "`)) +
		"workload: {prompts: \"func main() {\", max_tokens: 12}\ncollector: {primary: fault}\ntelemetry: " +
		"{baseline_s: 0.1}\n"
	if err := os.WriteFile(filepath.Join(folder, "e.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = folder
		var log strings.Builder
		cmd.Stderr = &log
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("llamatap %q: %v\n%s", args, err, log.String())
		}
		return string(out)
	}
	if got := run("mrm", "plan", "--config", "e.yaml"); !strings.Contains(got, "= 2 cells, 0 of them done") ||
		!strings.Contains(got, "not known: nothing is known of the program before its first run") {
		t.Errorf("plan: %s", got)
	}
	run("mrm", "run", "--config", "e.yaml")
	want, err := tool.Command("-m", model, "-p", "func main() {", "-n", "12", "-c", "256", "-s", "1", "-t", "1",
		"--temp", "0", "-no-cnv", "--no-display-prompt").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs, _ := filepath.Glob(filepath.Join(folder, "results", "*", "run_*"))
	archived, _ := filepath.Glob(filepath.Join(folder, "results", "contaminated", "*", "run_*"))
	if dirs = append(dirs, archived...); len(dirs) != 2 {
		t.Fatalf("%d runs", len(dirs))
	}
	clean := 0
	for _, dir := range dirs {
		run("verify", dir)
		m, err := memory.ReadMetadata(dir)
		if err != nil || m.Observer.SameOutput == nil || !*m.Observer.SameOutput || m.Engine.Type != "command" ||
			m.Observer.TargetRSSBytes < 6<<20 {
			t.Errorf("%s: %v, %+v", dir, err, m.Observer)
		}
		if m.Validity.Class != memory.Contaminated {
			clean++
		}
		if got, err := os.ReadFile(filepath.Join(dir, "raw", "tapped.out")); err != nil || m.Cell.KVType == "f16" &&
			string(got) != string(want) {
			t.Errorf("%s: wrote %q, by itself %q (%v)", dir, got, want, err)
		}
		if got := run("memory", dir); !strings.Contains(got, "fault") {
			t.Errorf("memory: %s", got)
		}
		run("mrm", "analyze", "--contaminated", "--figures", "svg", dir)
	}
	if got := run("mrm", "aggregate", "results", "--contaminated", "--format", "csv"); strings.Count(got,
		"wall_ratio") != 2 {
		t.Errorf("aggregate: %s", got)
	}
	known := "(measured: peak RSS of 2 earlier runs)"
	if clean == 1 { // a plan uses a contaminated run only where it has no other
		known = "(measured: peak RSS of 1 earlier run)"
	}
	if got := run("mrm", "plan", "--config", "e.yaml"); !strings.Contains(got, "= 2 cells, 2 of them done") ||
		!strings.Contains(got, known) {
		t.Errorf("plan behind it: %s", got)
	}
}
