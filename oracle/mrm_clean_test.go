//go:build linux

package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
)

// quietShare is the share of all processors that others may use for the machine to be quiet: a third of what the
// rule on the baseline allows.
const quietShare = 0.05

// TestCleanOnAQuietMachine: with a model of a billion weights and the ledger alone, every cell of a matrix is
// clean. Where somebody else was at work before or in a cell, it is tried again; a run that had the machine to
// itself and is not clean is a failure.
func TestCleanOnAQuietMachine(t *testing.T) {
	testenv.Slow(t)
	folder := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(testenv.NeedBinary(t), args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("llamatap %q: %v\n%s", args, err, out)
		}
	}
	busy := ""
	for try := range 4 {
		if busy = awaitQuiet(t, 2*time.Minute); busy != "" {
			break // it will not become quiet
		}
		if try == 0 { // not before it is worth while
			run("synth", "-o", "1b.gguf", "--params", "1b", "--type", "q8_0", "--quiet")
			if busy = awaitQuiet(t, 2*time.Minute); busy != "" {
				break
			}
		}
		results := fmt.Sprintf("results%d", try)
		config := "experiment: {name: clean, repetitions: 1}\nmodel: {path: 1b.gguf}\nengine: {n_ctx: 512, kv_type: " +
			"[f16, q8_0]}\n" +
			"workload: {prompts: \"func main() {\", max_tokens: 24}\ntelemetry: {baseline_s: 3}\noutput: {dir: " +
			results + "}\n"
		if err := os.WriteFile(filepath.Join(folder, "e.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		run("mrm", "run", "--config", "e.yaml")
		if busy = judgeClean(t, filepath.Join(folder, results)); busy == "" {
			return
		}
		t.Logf("try %d: %s", try+1, busy)
	}
	testenv.Beyond(t, "a quiet machine", busy+"; stop what else runs, and try again")
}

// awaitQuiet waits until others leave the processors alone for three seconds. It returns "", or what they used at
// the end.
func awaitQuiet(t *testing.T, most time.Duration) (busy string) {
	t.Helper()
	for end := time.Now().Add(most); ; {
		share := usedFor(t, 3*time.Second)
		if share < quietShare {
			return ""
		}
		if time.Now().After(end) {
			return fmt.Sprintf("others used %.0f %% of all processors for %v", 100*share, most)
		}
	}
}

// usedFor is the share of all processors' time that was used in a while, by the first line of /proc/stat; what a
// hypervisor gave to others counts.
func usedFor(t *testing.T, while time.Duration) float64 {
	t.Helper()
	read := func() (busy, all float64) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		for i, word := range strings.Fields(line)[1:9] {
			var n float64
			if _, err := fmt.Sscan(word, &n); err != nil {
				t.Fatal(err)
			}
			if all += n; i != 3 && i != 4 { // idle, and idle while a disk works
				busy += n
			}
		}
		return busy, all
	}
	busy, all := read()
	time.Sleep(while)
	busyThen, allThen := read()
	return (busyThen - busy) / max(allThen-all, 1)
}

// judgeClean demands that both cells are clean. It returns why a cell that is not had not the machine to itself;
// "": both are clean.
func judgeClean(t *testing.T, results string) (busy string) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(results, "*", "run_*"))
	archived, _ := filepath.Glob(filepath.Join(results, "contaminated", "*", "run_*"))
	if dirs = append(dirs, archived...); len(dirs) != 2 {
		t.Fatalf("%d of 2 cells", len(dirs))
	}
	for _, dir := range dirs {
		m, err := memory.ReadMetadata(dir)
		if err != nil {
			t.Fatal(err)
		}
		o := &m.Observer
		t.Logf("%s: %s; observer %.2f %% of a processor, %.1f MB or %.2f %% of the model's memory; before it %.1f %% "+
			"of all processors were used, by others in it %.1f %%; decode ratio %.3f",
			m.Cell.Name(), m.Validity.Class, known(o.CPUPct), float64(o.MemoryBytes)/1e6, known(o.MemoryPct),
			known(o.BaselineCPUPct), known(o.OthersCPUPct), known(o.DecodeRatio))
		switch {
		case m.Validity.Class == memory.Clean:
		case o.OthersCPUPct == nil || *o.OthersCPUPct > 100*quietShare || o.BaselineCPUPct == nil ||
			*o.BaselineCPUPct > 100*quietShare:
			busy = fmt.Sprintf("others were at work in %s: %s", m.Cell.Name(), m.Validity.Why())
		default:
			t.Errorf("%s had the machine to itself and is %s: %s", m.Cell.Name(), m.Validity.Class, m.Validity.Why())
		}
	}
	return busy
}

// known is a figure, -1 where it is not known.
func known(f *float64) float64 {
	if f == nil {
		return -1
	}
	return *f
}
