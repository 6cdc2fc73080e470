//go:build linux

package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestLedgerOfServer: two slots of llama-server compute at the same time, in caches of their own and in one that
// they share. Every cell is written for the sequence of its slot, as often as llama-server says that it computed
// tokens; each graph reads, of each sequence in it, the cells that are there by then; and what the ledger says of
// cells is what their lives say.
func TestLedgerOfServer(t *testing.T) {
	for _, args := range testenv.ByDay([][]string{{"-fa", "off", "--no-kv-unified"},
		{"-fa", "on", "--no-kv-unified"}, {"-fa", "on", "--kv-unified"}}, 1) {
		t.Run(strings.Join(args, " "), func(t *testing.T) { ledgerOfServer(t, args) })
	}
}

func ledgerOfServer(t *testing.T, args []string) {
	const slots = 2
	s := serve(t, []string{"--tap-ledger", "--tap-kv", "--tap-kv-block", "1"},
		append([]string{"-np", fmt.Sprint(slots), "-c", "1024", "-b", "64", "-t", "1", "--no-webui",
			"--cache-ram", "0"}, args...)...)
	var answers [slots][2]completionAnswer
	var both sync.WaitGroup
	for slot := range int32(slots) {
		prompts := [2]string{"package p", long}
		if slot == 1 {
			prompts = [2]string{long + "func main() {", "func main() {\n"}
		}
		both.Go(func() {
			for i, prompt := range prompts {
				answers[slot][i] = s.ask(t, question{prompt: prompt, slot: slot, n: 150,
					options: map[string]any{"cache_prompt": false}})
			}
		})
	}
	both.Wait()
	s.stop()
	dirs := runDirs(t, s.out)
	if len(dirs) != 1 {
		t.Fatalf("runs: %v\n%s", dirs, s.stderr.String())
	}
	file, err := gguf.Open(testenv.Model(t))
	if err != nil {
		t.Fatal(err)
	}
	cell := cellBytes(t, file, false)
	rows := tracesOf(t, dirs[0])
	want := map[int64][]int64{} // tokens by sequence and request
	for slot := range answers {
		for _, a := range answers[slot] {
			// the last one is not computed with
			want[int64(slot)] = append(want[int64(slot)], int64(a.Timings.Prompt+a.Predicted-1))
		}
	}
	unified := slices.Contains(args, "--kv-unified")
	checkServed(t, servedGraphs(t, rows), cell, unified, want)
	checkServedLives(t, dirs[0], rows, unified)
}

// served is what one graph does to the cache.
type served struct {
	number        int64
	written, read map[int64]int64 // bytes by sequence
	all           int64           // bytes that were read
}

// servedGraphs sums up what graphs do to the cache, in order.
func servedGraphs(t *testing.T, rows []accessRow) (order []*served) {
	t.Helper()
	graphs := map[int64]*served{}
	for i := range rows {
		r := &rows[i]
		if r.graph < 0 || r.phase != "generation" || r.region != "kv_cache" {
			continue
		}
		g := graphs[r.graph]
		if g == nil {
			g = &served{number: r.graph, written: map[int64]int64{}, read: map[int64]int64{}}
			graphs[r.graph] = g
			order = append(order, g)
		}
		switch {
		case r.op == "write":
			g.written[r.seq] += r.size
			if r.token < 0 || r.block < 0 {
				t.Errorf("%+v: a written cell has a token and a block", r)
			}
		case r.op == "read" && r.flags&int64(memtrace.TracePadded) == 0:
			g.read[r.seq] += r.size
			g.all += r.size
		}
	}
	return order
}

// checkServed follows both sequences graph by graph. want is how many tokens each request of a sequence has; each
// begins with an empty cache.
func checkServed(t *testing.T, graphs []*served, cell int64, unified bool, want map[int64][]int64) {
	t.Helper()
	there, request, shared := map[int64]int64{}, map[int64]int{}, 0
	for _, g := range graphs {
		sum := int64(0)
		for seq, bytes := range g.written {
			if bytes%cell != 0 || request[seq] >= len(want[seq]) {
				t.Fatalf("graph %d writes %d bytes for sequence %d, a token has %d; its requests are over: %v",
					g.number, bytes, seq, cell, request[seq] >= len(want[seq]))
			}
			there[seq] += bytes / cell
			sum += there[seq] * cell
			if !unified && g.read[seq] != there[seq]*cell {
				t.Errorf("graph %d reads %d bytes of sequence %d, which has %d cells of %d bytes", g.number,
					g.read[seq], seq, there[seq], cell)
			}
			if there[seq] == want[seq][request[seq]] {
				there[seq] = 0
				request[seq]++
			}
		}
		if g.all != sum {
			t.Errorf("graph %d reads %d bytes of caches, its sequences have %d", g.number, g.all, sum)
		}
		if len(g.written) > 1 {
			shared++
		}
	}
	for seq := range want {
		if request[seq] != len(want[seq]) || there[seq] != 0 {
			t.Errorf("of sequence %d %d requests were computed whole, and %d tokens of the next one; llama-server "+
				"says %v", seq, request[seq], there[seq], want[seq])
		}
	}
	if shared == 0 {
		t.Error("no graph has computed both sequences")
	}
}

// cellKey is a cell of a tensor of a cache, or with cell -1 a sequence's part of it.
type cellKey struct {
	tensor    string
	seq, cell int64
}

// checkServedLives holds what the ledger says of cells against their lives: writes cell by cell, reads by sequence
// where each has a cache of its own.
func checkServedLives(t *testing.T, dir string, rows []accessRow, unified bool) {
	t.Helper()
	names := regionNames(t, dir)
	written, read := map[cellKey]int64{}, map[cellKey]int64{}
	for i := range rows {
		r := &rows[i]
		if r.graph < 0 || r.phase != "generation" || r.region != "kv_cache" {
			continue
		}
		switch {
		case r.op == "write":
			written[cellKey{names[r.id], r.seq, r.block}] += r.size
		case r.flags&int64(memtrace.TracePadded) == 0:
			key := cellKey{names[r.id], r.seq, -1}
			if unified {
				key.seq = -1
			}
			read[key] += r.size
		}
	}
	lives := 0
	tableOf(t, dir, rundir.LivesName, []string{"block_id", "layer", "kv", "seq_id", "n_writes", "n_reads",
		"cell_bytes"}, func(value func(string) (int64, bool), text func(string) string) {
		number := func(name string) int64 { v, _ := value(name); return v }
		tensor := fmt.Sprintf("cache_%s_l%d", text("kv"), number("layer"))
		lives++
		written[cellKey{tensor, number("seq_id"), number("block_id")}] -= number("n_writes") * number("cell_bytes")
		key := cellKey{tensor, number("seq_id"), -1}
		if unified {
			key.seq = -1
		}
		read[key] -= number("n_reads") * number("cell_bytes")
	})
	for key, bytes := range written {
		if bytes != 0 {
			t.Errorf("%+v: the ledger writes %d bytes more than lives", key, bytes)
		}
	}
	for key, bytes := range read {
		if bytes != 0 {
			t.Errorf("%+v: the ledger reads %d bytes more than lives", key, bytes)
		}
	}
	if lives < 100 || len(read) < 4 {
		t.Errorf("%d lives, %d tensors", lives, len(read))
	}
}
