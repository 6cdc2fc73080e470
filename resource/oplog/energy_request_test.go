package oplog

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// TestEnergyOfRequests: what executions used is divided by rows among requests; with what was used in set-up and
// outside of executions it is what the counter says, over windows that executions cross, share and miss.
func TestEnergyOfRequests(t *testing.T) {
	one, two := owner{0, 1, 0, ggmlhooks.PhasePrefill}, owner{0, 2, 5, ggmlhooks.PhaseDecode}
	var e energy
	e.owners = map[owner]*owned{one: {tokens: 3}, two: {tokens: 1}}
	using(&e, "gpu-0", resource.EnergyCounter, 0, []int64{100, 200, 300}, []float64{10, 40, 7})
	using(&e, "package-0", resource.EnergyCounter, 0, []int64{150}, []float64{3})
	e.span(busySpan{0, 50, partPrefill}, rowsOf{one, 1})                       // 5 J
	e.span(busySpan{50, 150, partMixed}, rowsOf{one, 0.75}, rowsOf{two, 0.25}) // 5 J and 20 J
	e.span(busySpan{150, 200, partDecode}, rowsOf{two, 1})                     // 20 J, at once with
	e.span(busySpan{150, 200, part(ggmlhooks.PhaseSetup)})                     // this: 10 J each
	rows := e.rows()
	got, sum := map[string]string{}, map[string]float64{}
	for _, r := range e.requests() {
		got[fmt.Sprintf("%s %d %d %s", r.Domain, *r.SeqID, *r.Request, r.Phase)] = fmt.Sprintf("%.6g J, %d, %d ns",
			r.ApportionedJ, r.Tokens, r.UncoveredNS)
		sum[r.Domain] += r.ApportionedJ
	}
	if want := map[string]string{
		"gpu-0 1 0 prefill": "23.75 J, 3, 0 ns", "gpu-0 2 5 decode": "16.25 J, 1, 0 ns",
		"package-0 1 0 prefill": "2.5 J, 3, 0 ns", "package-0 2 5 decode": "0.5 J, 1, 25 ns",
	}; !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, r := range rows {
		if r.EnergyJ != nil && (r.Phase == "setup" || r.Phase == "outside") {
			sum[r.Domain] += *r.EnergyJ
		}
	}
	if math.Abs(sum["gpu-0"]-57) > 1e-9 || math.Abs(sum["package-0"]-3) > 1e-9 {
		t.Errorf("with the rest it is %v", sum)
	}
}

// TestEnergyRequestEvents: each row's request is in the events, and a slot's next request has energy of its own.
func TestEnergyRequestEvents(t *testing.T) {
	given := false
	b := newBench(t, Options{Level: resource.Minimal, Devices: func(to *Readings) {
		if !given {
			given = true
			to.Zones = append(to.Zones, ZoneReading{MonoNS: 2e9, WindowNS: 2e9, Zone: "package-0", WindowJ: 20})
		}
	}})
	b.clock = 1e9
	prompt, token := small(1, 4), small(2, 1)
	b.check(b.Graph(prompt))
	b.run(batch{graph: prompt, tokens: []int32{1, 2, 3, 4}})
	b.check(b.Graph(token))
	b.run(batch{graph: token, tokens: []int32{5}, read: true})
	_, events := b.lines()
	tokens, sum := map[string]int64{}, 0.0
	for _, r := range of[resource.RequestEnergy](events) {
		if r.Source != resource.Computed || r.EnergySource != resource.EnergyCounter {
			t.Errorf("%+v", r)
		}
		tokens[fmt.Sprintf("%d %d %d %s", *r.Ctx, *r.SeqID, *r.Request, r.Phase)] = r.Tokens
		sum += r.ApportionedJ
	}
	if want := map[string]int64{"0 0 0 prefill": 4, "0 0 0 decode": 1}; !maps.Equal(tokens, want) {
		t.Errorf("%v, want %v", tokens, want)
	}
	for _, r := range of[resource.Energy](events) {
		if r.Phase == "prefill" || r.Phase == "decode" {
			sum -= *r.EnergyJ
		}
	}
	if math.Abs(sum) > 1e-9 {
		t.Errorf("requests and phases differ by %g J", sum)
	}
}
