package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Tap is the table of what the tap costs: issue gates on one model.
type Tap struct {
	Model      Model
	LlamaBench string // path that starts llama-bench, "" = leave it out
	Completion string // path that starts llama-completion, "" = leave it out
	Limits     Limits
	// Only are parts of rows' names, in any case: other comparisons are left out. Empty: none is.
	Only     []string
	Table    *Table
	Progress func(string)
}

// Check finds out, before anything runs, that Only names no row.
func (t Tap) Check() error {
	turns := slices.ContainsFunc(alternated, func(c alternation) bool { return t.wants(c.row()) })
	if len(t.wanted(t.pairs())) == 0 && !turns {
		return fmt.Errorf("no row is named %s: give a part of a name that the table shows, such as DETAILED or drop",
			strings.Join(t.Only, " or "))
	}
	return nil
}

// Run measures and fills the table.
func (t Tap) Run(ctx context.Context) error {
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for _, p := range t.wanted(t.pairs()) {
		if p.Possible != nil {
			if err := p.Possible(); err != nil {
				t.Table.note("left out: " + p.Gates[0].Name + ": " + err.Error())
				continue
			}
		}
		outcome, err := p.Run(ctx, t.Limits, random, t.Progress)
		if err != nil {
			return err
		}
		for i, gate := range p.Gates {
			t.gate(&gate, outcome.Ratios[i])
		}
		if p.Overhead {
			if line, ok := overheadLine(p.Test.Name, outcome); ok {
				t.Table.Add(line)
			}
		}
	}
	return t.alternated(ctx)
}

func (t Tap) gate(g *Gate, ratio Interval) {
	t.Table.Add(Line{Name: g.Name, Figure: ratio.String(), Gate: g.limit(), Verdict: g.judge(ratio)})
}

// wants reports whether a row is measured.
func (t Tap) wants(name string) bool {
	part := func(only string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(only)) }
	return len(t.Only) == 0 || slices.ContainsFunc(t.Only, part)
}

// wanted leaves out the comparisons that are not measured.
func (t Tap) wanted(pairs []Pair) []Pair {
	return slices.DeleteFunc(pairs, func(p Pair) bool {
		if p.Overhead && t.wants(overheadRow+p.Test.Name) {
			return false
		}
		return !slices.ContainsFunc(p.Gates, func(g Gate) bool { return t.wants(g.Name) })
	})
}

// recorders are the recordings that are compared with plain runs by their rate of generated tokens.
var recorders = []struct {
	side, row string
	decode    float64 // gate; 0: none
	prefill   float64 // gate; 0: not measured
	overhead  bool    // the printed overhead is compared, too
	flags     string
}{
	{"l_out", "(b) residual stream to disk", 0.98, 0.97, false, "--tap-tensor l_out*"},
	{"all nodes", "(c) all nodes, f16+lz4", 0.95, 0.92, false,
		"--tap-granularity full_tensor --tap-codec lz4 --tap-dtype f16"},
	{"MINIMAL", "(g) events at MINIMAL", 0.995, 0, false, "--tap-resource-level MINIMAL"},
	{"DETAILED", "(g) events at DETAILED", 0.97, 0, false, "--tap-resource-level DETAILED"},
	{"VERBOSE", "(g) events at VERBOSE", 0.97, 0, true, "--tap-resource-level VERBOSE"},
	{"VERBOSE, all timed", "(g) events at VERBOSE, every graph timed", 0, 0, false,
		"--tap-resource-level VERBOSE --tap-resource-sample 1"},
	{"KV", "(g) blocks of the KV cache", 0.995, 0, false, "--tap-kv"},
	{"regions", "(g) map of memory", 0, 0, false, "--tap-regions"},
	{"ledger in rows", "(i) ledger, every access", 0.995, 0, true, "--tap-ledger=rows"},
	{"ledger in windows", "(i) ledger in windows", 0.995, 0, false, "--tap-ledger=windows"},
	{"faults sampled", "(j) page faults sampled", 0, 0, false, "--tap-samples=faults --tap-samples-ring 64M"},
	{"pages sampled", "(j) written pages of each graph", 0, 0, false, "--tap-samples=pages"},
	{"samples and faults", "(k) samples and faults", 0, 0, true,
		"--tap-samples=faults --tap-samples-ring 64M --tap-host waits"},
	{"cheap together", "(k) the cheap recorders together", 0.93, 0, true, "--tap-tensor l_out* " +
		"--tap-resource-level DETAILED --tap-ledger=windows --tap-kv --tap-host all"},
	{"everything", "(k) everything", 0, 0, true,
		"--tap-granularity full_tensor --tap-resource-level VERBOSE --tap-kv " +
			"--tap-regions --tap-ledger=rows --tap-samples=faults --tap-samples-ring 64M --tap-host all"},
	{"host", "(h) all host collectors", 0.99, 0, false, "--tap-host all"},
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
		pairs = append(pairs, Pair{Base: t.Model.llamaCompletion(t.Completion), Test: plain,
			Gates: decode("(a) run / llama-completion, decode")})
	}
	pairs = append(append(pairs, t.slowDisk(plain)...), t.bulk()...)
	for _, r := range recorders {
		p := Pair{Base: plain, Test: t.Model.Run(r.side, strings.Fields(r.flags)...), Overhead: r.overhead,
			Gates: []Gate{{Name: r.row + " / off, decode", AtLeast: r.decode, Of: Decode}}}
		if r.prefill > 0 {
			p.Gates = append(p.Gates, Gate{Name: r.row + " / off, prefill", AtLeast: r.prefill, Of: Prefill})
		}
		pairs = append(pairs, p)
	}
	return pairs
}
