//go:build linux

package oracle

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLargerThanPool captures logits of a whole batch that are several times as large as the memory that the tap
// may take: they come in pieces, and put together they are what a large pool captures at once.
func TestLargerThanPool(t *testing.T) {
	testenv.Slow(t)
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) { c.Width, c.FF, c.Vocab = 128, 128, 32000 })
	file := textFile(t, strings.Repeat(long+prompt, 8))
	args := []string{"-m", model, "-f", file, "-c", "256", "-b", "256", "-t", "2", "--chunks", "2"}
	capture := func(memory string) *capture {
		tap := append([]string{"--tap-tensors", "result_output,l_out", "--tap-memory", memory}, exact...)
		return tapped(t, tap, "llama-perplexity", args...).sealed(t)
	}
	small, large := capture("16M"), capture("512M")
	if a, b := small.ppl(t), large.ppl(t); a != b {
		t.Errorf("perplexity %s with a small pool, %s with a large one", a, b)
	}
	const whole = 128 * 32000 * 4 // llama-perplexity wants the logits of a chunk's second half
	pieces := 0
	for i := range small.packets {
		if p := &small.packets[i]; p.Node == "result_output" {
			pieces++
			if p.RawBytes > 4<<20 {
				t.Errorf("a packet of %d bytes went through a pool that is at most 16 MiB large", p.RawBytes)
			}
		}
	}
	if pieces < 2*whole/(4<<20) {
		t.Errorf("%d pieces", pieces)
	}
	if n := equalCaptures(t, "in pieces", small, large); n < 6 {
		t.Errorf("only %d tensors were compared", n)
	}
	for k, x := range large.tensors(t) {
		if k.node == "result_output" && (len(x.values)*4 != whole && len(x.values)*4 != 2*whole) {
			t.Errorf("%v has %d bytes", k, len(x.values)*4)
		}
	}
	if small.meta.Lossy || len(small.stream.Info().Losses) > 0 {
		t.Errorf("lost: %+v", small.stream.Info().Losses)
	}
}

// ppl is llama-perplexity's result.
func (c *capture) ppl(t *testing.T) string {
	t.Helper()
	_, result, found := strings.Cut(c.stdout+c.stderr, "Final estimate: ")
	if !found {
		t.Fatalf("no perplexity in %s%s", c.stdout, c.stderr)
	}
	result, _, _ = strings.Cut(result, "\n")
	return result
}
