//go:build linux

package oracle

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestReportInBrowser shows the requests and the experts of a recorded server in Chromium: nothing is wider than a
// telephone or a desk's screen, texts can be read in light and dark, and keys move through each chart.
func TestReportInBrowser(t *testing.T) {
	b := testenv.NeedBrowser(t)
	fakeGPU(t)
	s := serve(t, []string{"--tap-requests", "--tap-resource-level", "DETAILED"}, "-np", "3", "-c", "3072", "-t", "1",
		"--no-webui", "-m", synthetic(t, "qwen3moe", gguf.F16, sixteen))
	var all sync.WaitGroup
	for client := range 5 {
		all.Go(func() {
			for i := range 3 {
				s.ask(t, question{prompt: fmt.Sprintf("package p\nfunc f%d() {\n\treturn %d", client, i*i), slot: -1,
					n: 4 + 3*i + client, options: map[string]any{"ignore_eos": true, "cache_prompt": i < 2}})
			}
		})
	}
	all.Wait()
	for slot := range int32(3) { // another slot holds it
		s.ask(t, question{prompt: "package main\nimport (\n\t\"fmt\"\n", slot: slot, n: 4})
	}
	s.stop()
	page := filepath.Join(t.TempDir(), "page.html")
	llamatap(t, "report", runDirs(t, s.out)[0], "-o", page).good(t)
	for _, width := range []int{375, 1280} {
		for _, dark := range []bool{false, true} {
			b.Open("file://"+page, width, 900, dark)
			if named := b.Problems(); len(named) > 0 {
				t.Errorf("%d pixels, dark %v: %q", width, dark, named)
			}
			var silent []string
			b.Eval(`[...document.querySelectorAll("#requests figure, #experts figure")].filter((f) => {
				const chart = f.querySelector("svg"), says = () => f.querySelector("output").textContent;
				const press = (key) => { chart.focus(); document.activeElement.dispatchEvent(
					new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true})); return says(); };
				const first = press("ArrowRight"), second = press("ArrowRight");
				return !first || !second || first === second || press("ArrowLeft") !== first;
			}).map((f) => f.textContent.slice(0, 60))`, &silent)
			var charts int
			b.Eval(`document.querySelectorAll("#requests figure, #experts figure").length`, &charts)
			if len(silent) > 0 || charts != 3 {
				t.Errorf("%d pixels, dark %v: %d charts, keys do not move through %q", width, dark, charts, silent)
			}
			if keep := os.Getenv("LLAMATAP_PICTURES"); keep != "" {
				path := filepath.Join(keep, fmt.Sprintf("report-%d-%v.png", width, dark))
				if err := os.WriteFile(path, b.Picture(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if errs := b.Errors(); len(errs) > 0 {
		t.Errorf("the page reports %q", errs)
	}
}
