package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// Tap is the table of what the tap costs: issue gates on one model.
type Tap struct {
	Model       Model
	LlamaBench  string // path that starts llama-bench, "" = leave it out
	Completion  string // path that starts llama-completion, "" = leave it out
	OffCost     func(rounds int) (through, direct float64)
	Limits      Limits
	MemoryBound int64 // --tap-memory's default
	// Only are parts of rows' names, in any case: other comparisons are left out. Empty: none is.
	Only     []string
	Table    *Table
	Progress func(string)
}

// Run measures and fills the table.
func (t Tap) Run(ctx context.Context) error {
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	row := func(name, figure, gate string, verdict Verdict) {
		t.Table.Add(Line{Name: name, Figure: figure, Gate: gate, Verdict: verdict})
	}
	pairs := t.wanted(t.pairs(t.Model.Run("run")))
	if len(pairs) == 0 && !slices.ContainsFunc(turnNames(), t.wants) && !t.wants(offRow) && !t.wants(startRow) &&
		!t.wants(firstRow) {
		return fmt.Errorf("no row is named %s: give a part of a name that the table shows, such as DETAILED or drop",
			strings.Join(t.Only, " or "))
	}
	if t.wants(offRow) {
		t.off(row)
	}
	if err := t.startup(ctx, random, row); err != nil {
		return err
	}
	for _, p := range pairs {
		outcome, err := p.Run(ctx, t.Limits, random, t.Progress)
		if err != nil {
			return err
		}
		for i, gate := range p.Gates {
			t.Table.Add(Line{Name: gate.Name, Ratio: &outcome.Ratios[i], Gate: gate.limit(),
				Verdict: gate.judge(outcome.Ratios[i])})
		}
		t.details(row, p.Test.Name, outcome)
		if p.Overhead {
			t.overhead(p.Test.Name, outcome)
		}
	}
	return t.byTurns(ctx)
}

// wants reports whether a row is measured.
func (t Tap) wants(name string) bool {
	part := func(only string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(only)) }
	return len(t.Only) == 0 || slices.ContainsFunc(t.Only, part)
}

// wanted leaves out the comparisons that are not measured.
func (t Tap) wanted(all []Pair) []Pair {
	return slices.DeleteFunc(all, func(p Pair) bool {
		if p.Overhead && t.wants(overheadRow+p.Test.Name) {
			return false
		}
		return !slices.ContainsFunc(p.Gates, func(g Gate) bool { return t.wants(g.Name) })
	})
}

// pairs lists the comparisons: each Test side against plain, or plain against other people's programs.
func (t Tap) pairs(plain Side) []Pair {
	var pairs []Pair
	if t.LlamaBench != "" {
		pairs = append(pairs, Pair{Base: t.Model.LlamaBench(t.LlamaBench), Test: plain,
			Gates: []Gate{{Name: "(a) run / llama-bench, decode", Of: Decode}}},
			Pair{Base: t.Model.LlamaBench(t.LlamaBench), Test: t.Model.Measure(),
				Gates: []Gate{{Name: "(a) bench / llama-bench, decode", Of: Decode, Equal: true}}})
	}
	if t.Completion != "" {
		pairs = append(pairs, Pair{Base: t.Model.LlamaCompletion(t.Completion), Test: plain,
			Gates: []Gate{{Name: "(a) run / llama-completion, decode", Of: Decode}}})
	}
	load := func(nice int) func(context.Context) (func(), error) {
		return func(ctx context.Context) (func(), error) { return StartLoad(ctx, nice) }
	}
	pairs = append(pairs, t.slowDisk(plain)...)
	return append(pairs,
		Pair{Base: plain, Test: t.Model.Run("l_out", "--tap-tensors", "l_out*"),
			Gates: []Gate{{Name: "(b) residual stream to disk / off, decode", AtLeast: 0.97, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("all nodes", "--tap-granularity", "full_tensor", "--tap-codec", "lz4",
			"--tap-dtype", "f16"),
			Gates: []Gate{{Name: "(c) all nodes, f16+lz4 / off, decode", AtLeast: 0.90, Of: Decode},
				{Name: "(c) all nodes, f16+lz4 / off, prefill", AtLeast: 0.85, Of: Prefill}}},
		Pair{Base: plain, Test: t.Model.Run("load, nice 19"), Before: load(19),
			Gates: []Gate{{Name: "(e) codec pool busy at nice 19 / idle, decode", AtLeast: 0.95, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("MINIMAL", "--tap-resource-level", "MINIMAL"),
			Gates: []Gate{{Name: "(g) events at MINIMAL / off, decode", AtLeast: 0.995, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("DETAILED", "--tap-resource-level", "DETAILED"),
			Gates: []Gate{{Name: "(g) events at DETAILED / off, decode", AtLeast: 0.97, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("VERBOSE", "--tap-resource-level", "VERBOSE"), Overhead: true,
			Gates: []Gate{{Name: "(g) events at VERBOSE / off, decode", AtLeast: 0.93, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("KV", "--tap-kv"),
			Gates: []Gate{{Name: "(g) blocks of the KV cache / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("regions", "--tap-regions"),
			Gates: []Gate{{Name: "(g) map of memory / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run(ledgerRows, "--tap-ledger=rows"), Overhead: true,
			Gates: []Gate{{Name: "(i) ledger, every access / off, decode", AtLeast: 0.995, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run(ledgerWindows, "--tap-ledger=windows"),
			Gates: []Gate{{Name: "(i) ledger in windows / off, decode", AtLeast: 0.995, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("faults sampled", "--tap-samples=faults"),
			Gates: []Gate{{Name: "(j) page faults sampled / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("pages sampled", "--tap-samples=pages"),
			Gates: []Gate{{Name: "(j) written pages of each graph / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("samples and faults", "--tap-samples=faults", "--tap-host", "waits"),
			Overhead: true, Gates: []Gate{{Name: "(k) samples and faults / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("everything", "--tap-granularity", "full_tensor", "--tap-resource-level",
			"VERBOSE", "--tap-kv", "--tap-regions", "--tap-ledger=rows", "--tap-samples=faults", "--tap-host", "all"),
			Overhead: true, Gates: []Gate{{Name: "(k) everything / off, decode", Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("host", "--tap-host", "all"),
			Gates: []Gate{{Name: "(h) all host collectors / off, decode", AtLeast: 0.99, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("load, nice 0"), Before: load(0),
			Gates: []Gate{{Name: "(e) the same at nice 0, for comparison", Of: Decode}}},
	)
}

type rowFunc func(name, figure, gate string, verdict Verdict)

func under(value, limit float64) Verdict {
	if value <= limit {
		return Passed
	}
	return Failed
}

// offRow is the name of the row of a tap that records nothing.
const offRow = "(a) tap off: own time per token, all calls of a token"

// off measures the tap while nothing is recorded.
func (t Tap) off(row rowFunc) {
	through, direct := t.OffCost(2_000_000)
	own := through - direct
	row(offRow, fmt.Sprintf("%.1f ns (%.1f with, %.1f without the tap)", own, through, direct), "≤ 1 µs",
		under(own, 1000))
}

// details prints the metadata of the recordings of a pair, the median over the runs.
func (t Tap) details(row rowFunc, name string, o Outcome) {
	t.ledgerDetails(row, name, o)
	var own, ask, copies, peak, lost []float64
	for i, s := range o.Test {
		m := s.Recorded
		if m == nil || m.Tap == nil || m.Account == nil || len(m.Streams) == 0 {
			return
		}
		graphs := float64(inGraphs(m))
		own = append(own, float64(*m.Tap.OwnNS)/graphs)
		ask = append(ask, float64(*m.Tap.AskNS)/float64(*m.Tap.NodesAsked))
		copies = append(copies, float64(*m.Tap.Copies)/float64(m.Streams[0].Packets+m.Account.Setup.Discarded.Packets))
		lost = append(lost, lostShare(m))
		p := extra[processes](m, "processes")
		peak = append(peak, float64(p.Collector-p.Shared+p.Model-o.Base[i].PeakKiB)/1024)
	}
	ownGate, limit := "", Verdict("")
	if name == "l_out" {
		ownGate, limit = "≤ 1 %", under(median(own), 0.01)
	}
	row("    own time of the tap / time in graphs, "+name, fmt.Sprintf("%.3f %%", 100*median(own)), ownGate, limit)
	row("(d) one ask of a node, "+name, fmt.Sprintf("%.1f ns", median(ask)), "≤ 15 ns", under(median(ask), 15))
	row("(d) copies per captured tensor, "+name, fmt.Sprintf("%.3f", median(copies)), "1", under(median(copies), 1))
	row("    memory: peak of both processes over untraced, "+name,
		fmt.Sprintf("%.0f MiB (shared pages counted once)", median(peak)),
		fmt.Sprintf("≤ %d MiB", t.MemoryBound>>20), under(median(peak), float64(t.MemoryBound>>20)))
	if share := median(lost); share > 0 {
		row("    tensors lost, "+name, fmt.Sprintf("%.1f %%", 100*share), "", "")
	}
}

// lostShare is how much of what was to be recorded was lost, 0 to 1.
func lostShare(m *rundir.Metadata) float64 {
	var lost uint64
	for _, l := range m.Losses {
		lost += l.Packets
	}
	return float64(lost) / float64(max(lost+m.Streams[0].Packets, 1))
}

// processes is what metadata.json says of the two processes' memory.
type processes struct {
	Collector int64 `json:"collector_peak_rss_kib"`
	Shared    int64 `json:"collector_shared_kib"`
	Model     int64 `json:"model_peak_rss_kib"`
}

// extra reads an entry of a run's metadata that has no field of its own; a missing one is zero.
func extra[T any](m *rundir.Metadata, name string) (v T) {
	_ = json.Unmarshal(m.Extra[name], &v)
	return v
}
