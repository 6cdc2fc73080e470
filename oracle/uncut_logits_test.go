//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

// TestUncutLogits: the logits of every token are those of a run without the tap, bit by bit, though each tensor of the
// graph is flagged as an output. llama-results stores the logits; its prompt is longer than a micro-batch.
func TestUncutLogits(t *testing.T) {
	for _, arch := range archs(t, "qwen3moe", "gemma2") {
		for _, fa := range []string{"on", "off"} {
			t.Run(arch+" fa "+fa, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				logits := func(name string, run func(args ...string)) []byte {
					path := filepath.Join(dir, name)
					run("-m", synthetic(t, arch, gguf.Q8_0, nil), "-p", prompt, "-t", "1", "-c", "512", "-ub", "8",
						"-fa",
						fa, "-o", path)
					bits, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					return bits
				}
				want := logits("stock", func(args ...string) { stock(t, "llama-results", args...) })
				for _, tap := range [][]string{nil, {"--tap-resource-level", "VERBOSE"}} {
					var c *capture
					got := logits("tapped", func(args ...string) {
						c = tapped(t, slices.Concat(everything, tap), "llama-results", args...)
					})
					if packets := c.meta.Account.Captured.Packets; packets < 100 {
						t.Errorf("%d tensors were captured", packets)
					}
					if len(want) < 1<<12 || !bytes.Equal(got, want) {
						t.Errorf("%v: %d bytes of logits differ from %d without the tap", tap, len(got), len(want))
					}
				}
			})
		}
	}
}
