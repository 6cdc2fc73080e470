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
	pairs := t.wanted(t.pairs())
	turns := slices.ContainsFunc(alternated, func(c alternation) bool { return t.wants(c.row()) })
	if len(pairs) == 0 && !turns && !t.wants(offRow) && !t.wants(startRow) && !t.wants(firstRow) {
		return fmt.Errorf("no row is named %s: give a part of a name that the table shows, such as DETAILED or drop",
			strings.Join(t.Only, " or "))
	}
	if t.wants(offRow) {
		through, direct := t.OffCost(2_000_000)
		own := through - direct
		t.row(offRow, fmt.Sprintf("%.1f ns (%.1f with, %.1f without the tap)", own, through, direct), "≤ 1 µs",
			under(own, 1000))
	}
	if err := t.startup(ctx, random); err != nil {
		return err
	}
	for _, p := range pairs {
		outcome, err := p.Run(ctx, t.Limits, random, t.Progress)
		if err != nil {
			return err
		}
		for i, gate := range p.Gates {
			t.gate(&gate, outcome.Ratios[i])
		}
		t.ledgerDetails(p.Test.Name, outcome)
		t.details(p.Test.Name, outcome)
		if p.Overhead {
			t.overhead(p.Test.Name, outcome)
		}
	}
	return t.alternated(ctx)
}

func (t Tap) row(name, figure, gate string, verdict Verdict) {
	t.Table.Add(Line{Name: name, Figure: figure, Gate: gate, Verdict: verdict})
}

func (t Tap) gate(g *Gate, ratio Interval) { t.row(g.Name, ratio.String(), g.limit(), g.judge(ratio)) }

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

// recorders are the recordings that are compared with plain runs by their rate of generated tokens.
var recorders = []struct {
	side, row string
	atLeast   float64 // gate; 0: none
	overhead  bool    // the printed overhead is compared, too
	flags     string
}{
	{"l_out", "(b) residual stream to disk", 0.97, false, "--tap-tensors l_out*"},
	{"all nodes", "(c) all nodes, f16+lz4", 0.90, false,
		"--tap-granularity full_tensor --tap-codec lz4 --tap-dtype f16"},
	{"MINIMAL", "(g) events at MINIMAL", 0.995, false, "--tap-resource-level MINIMAL"},
	{"DETAILED", "(g) events at DETAILED", 0.97, false, "--tap-resource-level DETAILED"},
	{"VERBOSE", "(g) events at VERBOSE", 0.93, true, "--tap-resource-level VERBOSE"},
	{"KV", "(g) blocks of the KV cache", 0, false, "--tap-kv"},
	{"regions", "(g) map of memory", 0, false, "--tap-regions"},
	{ledgerRows, "(i) ledger, every access", 0.995, true, "--tap-ledger=rows"},
	{ledgerWindows, "(i) ledger in windows", 0.995, false, "--tap-ledger=windows"},
	{"faults sampled", "(j) page faults sampled", 0, false, "--tap-samples=faults"},
	{"pages sampled", "(j) written pages of each graph", 0, false, "--tap-samples=pages"},
	{"samples and faults", "(k) samples and faults", 0, true, "--tap-samples=faults --tap-host waits"},
	{"everything", "(k) everything", 0, true, "--tap-granularity full_tensor --tap-resource-level VERBOSE --tap-kv " +
		"--tap-regions --tap-ledger=rows --tap-samples=faults --tap-host all"},
	{"host", "(h) all host collectors", 0.99, false, "--tap-host all"},
}

// pairs lists the comparisons: each Test side against plain runs, or these against other people's programs.
func (t Tap) pairs() []Pair {
	plain := t.Model.Run("run")
	decode := func(name string) []Gate { return []Gate{{Name: name, Of: Decode}} }
	var pairs []Pair
	if t.LlamaBench != "" {
		base := t.Model.LlamaBench(t.LlamaBench)
		pairs = append(pairs, Pair{Base: base, Test: plain, Gates: decode("(a) run / llama-bench, decode")},
			Pair{Base: base, Test: t.Model.Measure(),
				Gates: []Gate{{Name: "(a) bench / llama-bench, decode", Of: Decode, Equal: true}}})
	}
	if t.Completion != "" {
		pairs = append(pairs, Pair{Base: t.Model.LlamaCompletion(t.Completion), Test: plain,
			Gates: decode("(a) run / llama-completion, decode")})
	}
	pairs = append(pairs, t.slowDisk(plain)...)
	for _, r := range recorders {
		p := Pair{Base: plain, Test: t.Model.Run(r.side, strings.Fields(r.flags)...), Overhead: r.overhead,
			Gates: []Gate{{Name: r.row + " / off, decode", AtLeast: r.atLeast, Of: Decode}}}
		if r.side == "all nodes" {
			p.Gates = append(p.Gates, Gate{Name: r.row + " / off, prefill", AtLeast: 0.85, Of: Prefill})
		}
		pairs = append(pairs, p)
	}
	load := func(nice int) func(context.Context) (func(), error) {
		return func(ctx context.Context) (func(), error) { return startLoad(ctx, nice) }
	}
	return append(pairs,
		Pair{Base: plain, Test: t.Model.Run("load, nice 19"), Before: load(19),
			Gates: []Gate{{Name: "(e) codec pool busy at nice 19 / idle, decode", AtLeast: 0.95, Of: Decode}}},
		Pair{Base: plain, Test: t.Model.Run("load, nice 0"), Before: load(0),
			Gates: decode("(e) the same at nice 0, for comparison")})
}

func under(value, limit float64) Verdict {
	if value <= limit {
		return Passed
	}
	return Failed
}

// offRow is the name of the row of a tap that records nothing.
const offRow = "(a) tap off: own time per token, all calls of a token"

// details prints the metadata of the recordings of a pair, the median over the runs.
func (t Tap) details(name string, o Outcome) {
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
		var packets uint64
		for _, l := range m.Losses {
			packets += l.Packets
		}
		lost = append(lost, float64(packets)/float64(max(packets+m.Streams[0].Packets, 1)))
		p := extra[processes](m, "processes")
		peak = append(peak, float64(p.Collector-p.Shared+p.Model-o.Base[i].PeakKiB)/1024)
	}
	ownGate, limit := "", Verdict("")
	if name == "l_out" {
		ownGate, limit = "≤ 1 %", under(median(own), 0.01)
	}
	t.row("    own time of the tap / time in graphs, "+name, fmt.Sprintf("%.3f %%", 100*median(own)), ownGate, limit)
	t.row("(d) one ask of a node, "+name, fmt.Sprintf("%.1f ns", median(ask)), "≤ 15 ns", under(median(ask), 15))
	t.row("(d) copies per captured tensor, "+name, fmt.Sprintf("%.3f", median(copies)), "1", under(median(copies), 1))
	t.row("    memory: peak of both processes over untraced, "+name,
		fmt.Sprintf("%.0f MiB (shared pages counted once)", median(peak)),
		fmt.Sprintf("≤ %d MiB", t.MemoryBound>>20), under(median(peak), float64(t.MemoryBound>>20)))
	if share := median(lost); share > 0 {
		t.row("    tensors lost, "+name, fmt.Sprintf("%.1f %%", 100*share), "", "")
	}
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
