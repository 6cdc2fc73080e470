package oplog

import (
	"fmt"
	"maps"
	"math"
	"strings"
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
	e.add(ownedSpan{busySpan: busySpan{0, 50, partPrefill}, rows: []rowsOf{rowsOf{one,
		1}}}) // 5 J
	e.add(ownedSpan{busySpan: busySpan{50, 150, partMixed}, rows: []rowsOf{rowsOf{one, 0.75}, rowsOf{two,
		0.25}}}) // 5 J and 20 J
	e.add(ownedSpan{busySpan: busySpan{150, 200, partDecode}, rows: []rowsOf{rowsOf{two,
		1}}}) // 20 J, at once with
	e.add(ownedSpan{busySpan: busySpan{150, 200, part(ggmlhooks.PhaseSetup)}}) // this: 10 J each
	e.divide(math.MaxInt64)
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

// TestEnergyOfGraphs: what a device used for an execution is written when its windows are over and no execution of
// them can come any more: not while one that began in them computes.
func TestEnergyOfGraphs(t *testing.T) {
	until := int64(1e9)
	b := newBench(t, Options{Level: resource.Detailed, Devices: func(to *Readings) {
		to.Zones = append(to.Zones, ZoneReading{MonoNS: until, WindowNS: 1e9, Zone: "package-0", WindowJ: 10})
		until += 1e9
	}})
	b.clock = 1e9
	g := small(1, 4)
	b.check(b.Graph(g))
	run := func() { // of 10 nodes, 0.1 s each but what is not timed
		b.run(batch{graph: g, tokens: []int32{1, 2, 3, 4}, read: true, nodes: ends(g), times: same(len(ends(g)), 1e8)})
	}
	written := func() int {
		b.check(b.r.Flush())
		return strings.Count(b.out.String(), `"event":"graph_energy"`)
	}
	run() // windows until 1 s and 2 s
	b.r.running.open[99] = begun{7, b.clock}
	for range 4 {
		b.r.Sampled()
	}
	if n := written(); n != 0 {
		t.Errorf("%d executions have energy while another one computes", n)
	}
	delete(b.r.running.open, 99)
	b.r.Sampled()
	b.r.Sampled()
	if n, used := written(), resource.Joules(b.r.Energy)["package-0"]["prefill"]; n != 1 || used <= 0 {
		t.Errorf("%d executions have energy, prefill has %g J", n, used)
	}
	_, events := b.lines()
	graphs := of[resource.GraphEnergy](events)
	layers := 0.0
	for _, joules := range graphs[0].LayerJ {
		layers += joules
	}
	duration := 0.0
	for _, c := range of[resource.Compute](events) {
		if c.DurationNS != nil && c.LayerID >= 0 {
			duration += float64(*c.DurationNS) / 1e9
		}
	}
	if joules := graphs[0].ApportionedJ; len(graphs) != 1 || math.Abs(layers-10*duration) > 1e-4 || layers >= joules ||
		*graphs[0].JoulesPerToken != joules/4 {
		t.Errorf("%+v: %g s in layers", graphs[0], duration)
	}
}
