//go:build linux

package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/process"
)

// TestAttach: what llamatap attach says of the requests of an unmodified llama-server is what that says, slot by slot;
// and the sums are those of its metrics.
func TestAttach(t *testing.T) {
	testenv.NeedBPF(t)
	const slots, rounds = 3, 5
	s := serveBy(t, "", testenv.NeedTool(t, "llama-server").Path, "-np", fmt.Sprint(slots), "-c", "3072", "-b", "64",
		"-t", "1", "--no-webui", "--cache-ram", "0")
	out := t.TempDir()
	watch := exec.Command(testenv.NeedBinary(t), "attach", fmt.Sprint(s.cmd.Process.Pid), "--interval", "0.2", "-o",
		out,
		"--host", "system", "--max-overhead", "100000")
	said, err := watch.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(said).ReadString('\n'); !strings.Contains(line, "watching") {
		t.Fatalf("attach says %q", line)
	}
	var answers [slots][rounds]completionAnswer
	var all sync.WaitGroup
	for slot := range int32(slots) {
		own := fmt.Sprintf("package p%d\n", slot)
		prompts := [rounds]string{own, own + "func main() {", own + "func main() {", long + own, own + long}
		all.Go(func() {
			for i, prompt := range prompts {
				answers[slot][i] = s.ask(t, question{prompt: prompt, slot: slot, n: 1 + (i*3+int(slot))%7})
			}
		})
	}
	all.Wait()
	s.stop() // and with it attach ends
	if err := watch.Wait(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(out, "llama_calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	last := map[[2]int]process.CallRequest{} // by sequence and number
	prompt, generated := 0, 0
	for lines := json.NewDecoder(file); lines.More(); {
		var line process.CallLine
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Lost+line.Unreadable > 0 || line.RowsUnwatched || len(line.Contexts) > 1 {
			t.Errorf("%+v", line)
		}
		for _, f := range line.Contexts {
			prompt, generated = prompt+f.Prompt, generated+f.Generated
		}
		for _, r := range line.Requests {
			last[[2]int{int(r.Sequence), r.Number}] = r
		}
	}
	got := make([][]process.CallRequest, slots)
	for slot := range got {
		for r, ok := last[[2]int{slot, 0}]; ok; r, ok = last[[2]int{slot, r.Number + 1}] {
			got[slot] = append(got[slot], r)
		}
	}
	for slot := range got {
		got[slot] = slices.DeleteFunc(got[slot], func(r process.CallRequest) bool { return r.Partial })
		if len(got[slot]) != rounds {
			t.Errorf("slot %d: %d requests, want %d: %+v", slot, len(got[slot]), rounds, got[slot])
			continue
		}
		for i, r := range got[slot] {
			a := &answers[slot][i]
			if r.Cached == nil || *r.Cached != a.Timings.Cached || r.Prompt != a.Timings.Prompt ||
				r.Generated != a.Predicted || r.PromptNS <= 0 {
				t.Errorf("slot %d, request %d: %+v; llama-server says %+v, %d generated", slot, i, r, a.Timings,
					a.Predicted)
			}
			prompt, generated = prompt-a.Timings.Prompt, generated-a.Predicted
		}
	}
	if prompt != 0 || generated != 0 {
		t.Errorf("%d prompt tokens and %d generated ones more than llama-server says", prompt, generated)
	}
	if info, err := os.Stat(filepath.Join(out, "system_metrics.jsonl")); err != nil || info.Size() == 0 {
		t.Errorf("no lines of the host: %v", err)
	}
}
