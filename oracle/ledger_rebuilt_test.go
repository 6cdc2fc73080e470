//go:build linux

package oracle

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLedgerOfRebuiltGraphs: llama.cpp builds a graph for every few hundred cells more, and another one for the
// prompt. Described by what differs from the graph before, or whole, as they are where tensors are captured, they say
// the same of every access.
func TestLedgerOfRebuiltGraphs(t *testing.T) {
	testenv.Slow(t)
	args := []string{"llama-completion", "--tap-ledger", "-m", testenv.Model(t), "-p", prompt, "-n", "520",
		"--ignore-eos", "--temp", "0", "-t", "1", "-c", "1024", "-no-cnv"}
	changes, dir := ledgerOf(t, args...)
	tap := metadata(t, dir).Tap
	if *tap.Rebuilt < 3 || *tap.Graphs-*tap.Rebuilt > 2 || *tap.RebuiltNS <= 0 || *tap.RebuiltNS >= *tap.DescribeNS {
		t.Errorf("%d of %d graphs were described as changes, in %d of %d ns", *tap.Rebuilt, *tap.Graphs, *tap.RebuiltNS,
			*tap.DescribeNS)
	}
	whole, other := ledgerOf(t, append(args, "--tap-tensors", "result_norm")...)
	if tap = metadata(t, other).Tap; *tap.Rebuilt != 0 {
		t.Errorf("%d graphs were described as changes though tensors of them were captured", *tap.Rebuilt)
	}
	if len(changes) != len(whole) || len(whole) == 0 {
		t.Fatalf("%d rows, and %d where graphs are described whole", len(changes), len(whole))
	}
	for i := range whole {
		got, want := changes[i], whole[i]
		// when, where memory was got, and numbers of regions, which have other names where tensors are captured
		got.ts, got.addr, got.id, want.ts, want.addr, want.id = 0, 0, 0, 0, 0, 0
		if got != want {
			t.Fatalf("row %d:\n%+v, and where graphs are described whole\n%+v", i, got, want)
		}
	}
}
