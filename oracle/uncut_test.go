//go:build linux

package oracle

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

// TestUncut: tensors that are copied once the whole graph is computed are those that are copied while it is, bit by
// bit, and so is the text that the model generates.
func TestUncut(t *testing.T) {
	for i, arch := range archs(t, "llama", "qwen3moe", "gemma3", "jamba", "gpt-oss") {
		for _, fa := range attentions(i) {
			t.Run(arch+" fa "+fa, func(t *testing.T) {
				t.Parallel()
				uncutEqualsCut(t, arch, "-fa", fa)
			})
		}
	}
}

// uncutEqualsCut records all tensors of a model of an architecture with whole graphs and with cut ones, and compares
// them bit by bit.
func uncutEqualsCut(t *testing.T, arch string, more ...string) {
	t.Helper()
	model := synthetic(t, arch, gguf.F16, nil)
	args := append([]string{"-m", model, "-p", prompt, "-n", "6", "--temp", "0", "-t", "1", "-c", "512", "-ub", "8"},
		more...)
	cut := record(t, slices.Concat(everything, []string{"--tap-device-memory", "0"}), args...)
	uncut := record(t, everything, args...)
	if cut.stdout != uncut.stdout {
		t.Errorf("the text is %q, and %q where the graph is cut", uncut.stdout, cut.stdout)
	}
	// Of a recurrent state, later nodes change what was copied into it before.
	rewritten := slices.Contains([]string{"mamba", "jamba"}, arch)
	all, left := cut.meta.Account.Time.Cuts, uncut.meta.Account.Time.Cuts
	if all == 0 || left*10 > all || (left != 0 && !rewritten) {
		t.Errorf("graphs were cut %d times, and %d times where they should be", left, all)
	}
	checkPaths(t, cut, false)
	checkPaths(t, uncut, true)
	got, want := uncut.tensors(t), cut.tensors(t)
	if len(got) != len(want) || len(got) < 100 {
		t.Errorf("%d tensors, and %d where the graph is cut", len(got), len(want))
	}
	for k, w := range want {
		if g := got[k]; g == nil || g.TokenFirst != w.TokenFirst || !sameBits(g.values, w.values) {
			t.Errorf("%v differs", k)
		}
	}
}

// checkPaths checks that the metadata count every captured tensor as captured with its graph whole, or cut.
func checkPaths(t *testing.T, c *capture, whole bool) {
	t.Helper()
	var paths []struct {
		Tensor string
		Whole  uint64 `json:"whole_graph"`
		Cut    uint64 `json:"cut_graph"`
	}
	if err := json.Unmarshal(c.meta.Extra["capture_paths"], &paths); err != nil {
		t.Fatal(err)
	}
	sum, cut := uint64(0), uint64(0)
	for _, p := range paths {
		sum, cut = sum+p.Whole+p.Cut, cut+p.Cut
	}
	if all := c.meta.Account.Captured.Packets; sum != all || (whole && cut*10 > all) || (!whole && cut != all) {
		t.Errorf("%d of %d tensors were captured by a cut, and the account has %d", cut, sum, all)
	}
}
