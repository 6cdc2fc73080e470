package oplog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

const (
	partPrefill = part(ggmlhooks.PhasePrefill)
	partDecode  = part(ggmlhooks.PhaseDecode)
)

// using feeds windows of a domain, each from the end of the one before on.
func using(e *energy, name, source string, start int64, ends []int64, joules []float64) {
	e.window(name, energyWindow{start, start, 0, ""})
	for i, end := range ends {
		e.window(name, energyWindow{start, end, joules[i], source})
		start = end
	}
}

// shown is rows in short: phase, joules, time, and what differs from 0 and 1.
func shown(rows []resource.EnergyUse) (all []string) {
	for _, r := range rows {
		text := fmt.Sprintf("%s %s", r.Domain, r.Phase)
		if r.EnergyJ != nil {
			text += fmt.Sprintf(" %.6g J", *r.EnergyJ)
		}
		text += fmt.Sprintf(" %d ns in %d", r.DurationNS, r.Windows)
		if r.SharedShare != nil {
			text += fmt.Sprintf(", shared %.3g", *r.SharedShare)
		}
		if r.BusyShare != nil {
			text += fmt.Sprintf(", busy %.3g", *r.BusyShare)
		}
		if r.Tokens != nil {
			text += fmt.Sprintf(", %d tokens", *r.Tokens)
		}
		if r.JoulesPerToken != nil {
			text += fmt.Sprintf(" of %.3g J", *r.JoulesPerToken)
		}
		if r.UncoveredNS != 0 {
			text += fmt.Sprintf(", uncovered %d", r.UncoveredNS)
		}
		all = append(all, text)
	}
	return all
}

// TestEnergyIsDivided: known joules of windows go to known phases.
func TestEnergyIsDivided(t *testing.T) {
	const counter = resource.EnergyCounter
	for _, c := range []struct {
		name string
		make func(e *energy)
		want []string
	}{
		{"a window for each phase, and one outside", func(e *energy) {
			using(e, "gpu-0", counter, 0, []int64{100, 200, 300}, []float64{30, 20, 5})
			e.add(ownedSpan{busySpan: busySpan{0, 100, partPrefill}})
			e.add(ownedSpan{busySpan: busySpan{100, 150, partDecode}})
			e.add(ownedSpan{busySpan: busySpan{150, 200, partDecode}})
			e.tokens[partPrefill], e.tokens[partDecode] = 60, 2
		}, []string{
			"gpu-0 prefill 30 J 100 ns in 1, shared 0, busy 1, 60 tokens of 0.5 J",
			"gpu-0 decode 20 J 100 ns in 1, shared 0, busy 1, 2 tokens of 10 J",
			"gpu-0 outside 5 J 100 ns in 1, shared 0",
		}},
		{"one window for everything", func(e *energy) {
			using(e, "gpu-0", counter, 0, []int64{1000}, []float64{10})
			e.add(ownedSpan{busySpan: busySpan{100, 300, partPrefill}})
			e.add(ownedSpan{busySpan: busySpan{300, 500, partDecode}})
			e.add(ownedSpan{busySpan: busySpan{600, 700, partMixed}})
		}, []string{
			"gpu-0 prefill 2 J 200 ns in 1, shared 1, busy 0.5",
			"gpu-0 decode 2 J 200 ns in 1, shared 1, busy 0.5",
			"gpu-0 mixed 1 J 100 ns in 1, shared 1, busy 0.5",
			"gpu-0 outside 5 J 500 ns in 1, shared 1",
		}},
		{"an execution over three windows", func(e *energy) {
			using(e, "gpu-0", counter, 0, []int64{100, 200, 300}, []float64{10, 40, 10})
			e.add(ownedSpan{busySpan: busySpan{50, 250, partDecode}})
		}, []string{
			"gpu-0 decode 50 J 200 ns in 3, shared 0, busy 0.667",
			"gpu-0 outside 10 J 100 ns in 2, shared 1",
		}},
		{"two contexts at once share the time", func(e *energy) {
			using(e, "gpu-0", counter, 0, []int64{100}, []float64{10})
			e.add(ownedSpan{busySpan: busySpan{20, 60, partDecode}})
			e.add(ownedSpan{busySpan: busySpan{0, 40, partPrefill}}) // reported later, began earlier
		}, []string{
			"gpu-0 prefill 3 J 30 ns in 1, shared 1, busy 0.6",
			"gpu-0 decode 3 J 30 ns in 1, shared 1, busy 0.6",
			"gpu-0 outside 4 J 40 ns in 1, shared 1",
		}},
		{"several devices, one by samples of its power", func(e *energy) {
			using(e, "gpu-0", resource.PowerSamples, 0, []int64{100}, []float64{10})
			using(e, "package-0/dram", counter, 50, []int64{100}, []float64{1})
			e.add(ownedSpan{busySpan: busySpan{0, 75, partDecode}})
			e.tokens[partDecode] = 3
		}, []string{
			"gpu-0 decode 7.5 J 75 ns in 1, shared 0, busy 0.75, 3 tokens of 2.5 J",
			"gpu-0 outside 2.5 J 25 ns in 1, shared 1",
			"package-0/dram decode 0.5 J 25 ns in 1, shared 0, busy 0.5, 3 tokens, uncovered 50",
			"package-0/dram outside 0.5 J 25 ns in 1, shared 1",
		}},
		{"a counter that began anew, and an execution after the last window", func(e *energy) {
			using(e, "gpu-0", counter, 0, []int64{100}, []float64{10})
			e.window("gpu-0", energyWindow{100, 200, 0, ""})
			e.window("gpu-0", energyWindow{200, 300, 7, counter})
			e.add(ownedSpan{busySpan: busySpan{0, 100, partPrefill}})
			e.add(ownedSpan{busySpan: busySpan{150, 250, partDecode}})
			e.add(ownedSpan{busySpan: busySpan{300, 310, partDecode}})
			e.add(ownedSpan{busySpan: busySpan{-9, 0, part(ggmlhooks.PhaseMaintenance)}})
			e.tokens[partPrefill], e.tokens[partDecode] = 10, 1
		}, []string{
			"gpu-0 maintenance 0 ns in 0, uncovered 9",
			"gpu-0 prefill 10 J 100 ns in 1, shared 0, busy 1, 10 tokens of 1 J",
			"gpu-0 decode 3.5 J 50 ns in 1, shared 0, busy 0.5, 1 tokens, uncovered 60",
			"gpu-0 outside 3.5 J 50 ns in 1, shared 1",
		}},
		{"a device that reports no energy", func(e *energy) {
			using(e, "gpu-0", "", 0, []int64{100}, []float64{0})
			e.add(ownedSpan{busySpan: busySpan{0, 100, partPrefill}})
		}, nil},
	} {
		var e energy
		c.make(&e)
		e.divide(math.MaxInt64)
		if got := shown(e.rows()); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.name, got, c.want)
		}
	}
}

// TestEnergyIsKept: over far more windows and executions than are kept, nothing of the counter's difference is lost,
// and each phase has what it has when all are known at once. An execution that is reported long after its windows were
// divided is counted as uncovered.
func TestEnergyIsKept(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var e energy
	var sum, want [parts]float64
	now, total := int64(1000), 0.0
	e.window("gpu-0", energyWindow{now, now, 0, ""})
	for range 3 * maxSpans {
		n := 1 + r.IntN(3) // executions of one phase, and a pause, in a window that holds nothing else
		p := []part{partPrefill, partDecode}[r.IntN(2)]
		start := now
		for range n {
			end := now + 1 + r.Int64N(1000)
			e.add(ownedSpan{busySpan: busySpan{now, end, p}})
			sum[p] += float64(end - now)
			now = end
		}
		now += 10
		sum[partOutside] += 10
		joules := r.Float64() * 10
		e.window("gpu-0", energyWindow{start, now, joules, resource.EnergyCounter})
		total += joules
		want[p] += joules * float64(now-10-start) / float64(now-start)
		want[partOutside] += joules * 10 / float64(now-start)
	}
	if len(e.spans) > maxSpans || len(e.domains[0].windows) > maxWindows {
		t.Errorf("%d executions and %d windows are kept", len(e.spans), len(e.domains[0].windows))
	}
	e.add(ownedSpan{busySpan: busySpan{500, 700, part(ggmlhooks.PhaseSetup)}})
	got := 0.0
	e.divide(math.MaxInt64)
	for _, row := range e.rows() {
		known := []part{partPrefill, partDecode, partOutside}
		p := slices.IndexFunc(known, func(p part) bool { return p.String() == row.Phase })
		if p < 0 {
			if row.Phase != "setup" || row.EnergyJ != nil || row.UncoveredNS != 200 {
				t.Errorf("%+v", row)
			}
			continue
		}
		of := known[p]
		got += *row.EnergyJ
		if math.Abs(*row.EnergyJ-want[of]) > 1e-6*total || float64(row.DurationNS) != sum[of] || row.UncoveredNS != 0 {
			t.Errorf("%+v, want %g J in %g ns", row, want[of], sum[of])
		}
	}
	if math.Abs(got-total) > 1e-9*total {
		t.Errorf("%g J of %g", got, total)
	}
}

// TestEnergyEvents: the recorder counts tokens by phase, and batches of both phases as mixed; what it reports is in the
// events, the level being OFF or not.
func TestEnergyEvents(t *testing.T) {
	for _, level := range []resource.Level{resource.Verbose, resource.Off} {
		given := false
		b := newBench(t, Options{Level: resource.Verbose, Devices: func(to *Readings) {
			if given {
				return
			}
			given = true
			to.Zones = append(to.Zones, ZoneReading{MonoNS: 2e9, WindowNS: 2e9, Zone: "package-0", WindowJ: 20})
		}})
		b.r.SetLevel(level, 0)
		b.clock = 1e9
		prompt, token := small(1, 4), small(2, 1)
		b.check(b.Graph(prompt))
		b.run(batch{graph: prompt, tokens: []int32{1, 2, 3, 4}})
		b.check(b.Graph(token))
		for range 3 {
			b.run(batch{graph: token, tokens: []int32{5}, read: true})
		}
		_, events := b.lines()
		var rows []resource.EnergyUse
		sum, tokens := 0.0, map[string]int64{}
		for _, e := range of[resource.Energy](events) {
			rows = append(rows, e.EnergyUse)
			sum += *e.EnergyJ
			if e.Tokens != nil {
				tokens[e.Phase] = *e.Tokens
			}
			if e.Source != resource.Computed || e.EnergySource != resource.EnergyCounter {
				t.Errorf("%+v", e)
			}
		}
		if tokens["prefill"] != 4 || tokens["decode"] != 3 || len(rows) != 3 || math.Abs(sum-20) > 1e-9 {
			t.Errorf("%v: %q", level, shown(rows))
		}
		if !slices.EqualFunc(rows, b.r.Energy, func(a, b resource.EnergyUse) bool {
			return fmt.Sprint(shown([]resource.EnergyUse{a})) == fmt.Sprint(shown([]resource.EnergyUse{b}))
		}) {
			t.Errorf("the recorder reports %q, the events %q", shown(b.r.Energy), shown(rows))
		}
	}
}
