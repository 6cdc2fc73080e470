//go:build linux

package oracle

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestCallersCallback taps a program that has an eval callback of its own: it sees what it sees without the tap,
// and the tap captures what it captures without the program's callback.
func TestCallersCallback(t *testing.T) {
	args := []string{"-m", testenv.Model(t), "-p", prompt, "-t", "1", "-c", "512", "-ub", "8"}
	want, _ := stock(t, "llama-eval-callback", args...)
	some := append([]string{"--tap-tensors", "l_out,Qcur,kqv_out"}, exact...)
	for name, tap := range map[string][]string{"all": everything, "some": some} {
		c := tapped(t, tap, "llama-eval-callback", args...).sealed(t)
		if withoutUncomputed(c.stdout) != withoutUncomputed(want) {
			t.Errorf("%s: the program's callback saw other nodes or values", name)
		}
		c.setup(t, 0)
		alone := record(t, tap, append(args, "-n", "1", "--temp", "0")...)
		wantIDs(t, name, c.ids(), alone.ids())
		if n := equalValues(t, c, alone); n < 20 {
			t.Errorf("%s: only %d tensors were compared", name, n)
		}
	}
}

// uncomputed is what llama-eval-callback prints of a node that llama.cpp plans for mixed inputs and does not compute
// for text: its values are whatever lay in that memory before.
var uncomputed = regexp.MustCompile(`(?m)^(.*GET_ROWS\(.*, inp_mixed_tokens\{.*)\n((?:[ \t]+.*\n)*)`)

// withoutUncomputed leaves out the values of such nodes.
func withoutUncomputed(printed string) string { return uncomputed.ReplaceAllString(printed, "$1\n") }

// equalValues compares two runs in order; their executions may be numbered otherwise.
func equalValues(t *testing.T, got, want *capture) int {
	t.Helper()
	if len(got.packets) != len(want.packets) {
		t.Fatalf("%d packets, want %d", len(got.packets), len(want.packets))
	}
	for i := range got.packets {
		g, w := &got.packets[i], &want.packets[i]
		a, errA := got.stream.Float32(g, nil)
		b, errB := want.stream.Float32(w, nil)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if g.Name != w.Name || g.TokenFirst != w.TokenFirst || !sameBits(a, b) {
			t.Errorf("%v: %s", keyOf(g), firstDifference(a, b))
		}
	}
	return len(got.packets)
}

// TestTokensOfImatrix: llama-imatrix looks at activations by a callback alone, and clears its cache after each chunk.
func TestTokensOfImatrix(t *testing.T) {
	testenv.Slow(t)
	text := ""
	for range 12 {
		text += long + prompt
	}
	file := textFile(t, text)
	out := filepath.Join(t.TempDir(), "imatrix.gguf")
	args := []string{"-m", testenv.Model(t), "-f", file, "-c", "256", "-b", "256", "-t", "1", "--no-ppl", "-o", out}
	_, log := stock(t, "llama-imatrix", args...)
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(out)
	c := tapped(t, residual, "llama-imatrix", args...).sealed(t)
	wantPlain(t, c)
	chunks := logged(t, log, `over (\d+) chunks`)
	if len(chunks) != 1 || len(c.tokens) != 256*int(chunks[0]) || chunks[0] < 3 {
		t.Errorf("%d tokens of %v chunks", len(c.tokens), chunks)
	}
	c.setup(t, 0)
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// The file names itself.
	path := regexp.MustCompile(`/[ -~]*`)
	if !slices.Equal(path.ReplaceAll(got, nil), path.ReplaceAll(want, nil)) {
		t.Error("the importance matrix differs from that of a run without the tap")
	}
}
