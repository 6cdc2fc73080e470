//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestRequestEnergy: what a GPU's counter says is divided among the requests of two slots, other executions and the
// rest, and nothing is left. A request has the shares of its rows, counted by the server's answers.
func TestRequestEnergy(t *testing.T) {
	fakeGPU(t)
	s := serve(t, []string{"--tap-requests", "--tap-resource-level", "DETAILED"}, "-np", "2", "-c", "2048", "-t", "1",
		"--no-webui")
	view := show(t, s.out)
	var lock sync.Mutex
	rows := map[int]int{} // of requests by output tokens, which differ
	var all sync.WaitGroup
	for client := range 2 {
		all.Go(func() {
			for i := range 3 {
				n := 4 + 10*client + i
				a := s.ask(t, question{prompt: "func main() {", slot: -1, n: n,
					options: map[string]any{"ignore_eos": true}})
				lock.Lock()
				rows[n] = a.Timings.Prompt + n - 1 // the last token that is chosen is not computed
				lock.Unlock()
			}
		})
	}
	all.Wait()
	live := map[string]float64{}
	for end := time.Now().Add(testenv.Patience()); live["energy_joules_total/decode"] == 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		live = figures(view.ask(t, "GET", "/metrics", ""))
	}
	s.stop()
	dir := runDirs(t, s.out)[0]
	counter := 0.0
	events := eventsOf(t, filepath.Join(dir, "resource.jsonl"))
	for _, e := range of[resource.GPUSample](events) {
		if e.EnergyJ != nil {
			counter += *e.EnergyJ
		}
	}
	var said struct {
		Requests []struct {
			ID     int
			Output int                      `json:"output_tokens"`
			Joules float64                  `json:"apportioned_energy_j"`
			Shares []resources.RequestShare `json:"apportioned_energy"`
		}
		Energy []resources.DeviceEnergy
	}
	if err := json.Unmarshal([]byte(llamatap(t, "requests", dir, "--json").good(t).stdout), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Energy) != 1 || len(said.Requests) != 6 || counter == 0 {
		t.Fatalf("%+v, %g J", said, counter)
	}
	sum := 0.0
	for _, q := range said.Requests {
		tokens, joules := 0, 0.0
		for _, of := range q.Shares {
			tokens, joules = tokens+int(of.Tokens), joules+of.ApportionedJ
		}
		if q.Joules <= 0 || tokens != rows[q.Output] || math.Abs(joules-q.Joules) > 1e-9 {
			t.Errorf("%+v has %d rows, want %d", q, tokens, rows[q.Output])
		}
		sum += q.Joules
	}
	e := said.Energy[0]
	for name, pair := range map[string][2]float64{
		"the counter": {e.CounterJ, counter}, "the requests": {e.RequestsJ, sum},
		"all parts": {e.RequestsJ + e.OtherJ + e.IdleJ, counter},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9*counter {
			t.Errorf("%s: %g J, want %g J", name, pair[0], pair[1])
		}
	}
	if e.IdleJ <= 0 || e.OtherJ < 0 {
		t.Errorf("%+v", e)
	}
	phases := map[string]float64{}
	for _, e := range of[resource.Energy](events) {
		if e.EnergyJ != nil { // of a phase that no reading fell into
			phases[e.Phase] += *e.EnergyJ
		}
	}
	wantGraphEnergy(t, dir, events, phases)
	now := figures(view.ask(t, "GET", "/metrics", ""))
	for phase, joules := range phases {
		name := "energy_joules_total/" + phase
		if math.Abs(now[name]-joules) > 1e-9*counter || live[name] > now[name]*(1+1e-9) {
			t.Errorf("%s is %g J, and was %g J; events have %g J", name, now[name], live[name], joules)
		}
	}
	if live["energy_joules_total/decode"] <= 0 {
		t.Error("no energy was reported while the server ran")
	}
	page := filepath.Join(t.TempDir(), "page.html")
	llamatap(t, "report", dir, "-o", page).good(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	row := `<th scope="row">gpu-0</th>`
	for _, joules := range []float64{e.CounterJ, e.RequestsJ, *e.PromptTokenJ, *e.TokenJ, e.OtherJ, e.IdleJ} {
		row += fmt.Sprintf(`<td class="n">%.4g J</td>`, joules)
	}
	if !strings.Contains(string(text), row) {
		t.Errorf("the page lacks %s", row)
	}
	for _, q := range said.Requests {
		for _, of := range q.Shares {
			if !strings.Contains(string(text), fmt.Sprintf("request %d: ", q.ID)) ||
				!strings.Contains(string(text), fmt.Sprintf(", %.4g J", of.ApportionedJ)) {
				t.Errorf("the page lacks the %g J of request %d's %s", of.ApportionedJ, q.ID, of.Phase)
			}
		}
	}
}

// wantGraphEnergy: the energy of executions adds up to that of their phases. Layers have it in proportion to their
// measured times, and a token its even share: both are in the summary.
func wantGraphEnergy(t *testing.T, dir string, events []any, phases map[string]float64) {
	t.Helper()
	times, tokens := map[uint64]map[int]int64{}, map[uint64]int{}
	for _, c := range of[resource.Compute](events) {
		if c.DurationNS != nil && c.LayerID >= 0 {
			if times[c.Exec] == nil {
				times[c.Exec] = map[int]int64{}
			}
			times[c.Exec][c.LayerID] += *c.DurationNS
		}
	}
	for _, g := range of[resource.Graph](events) {
		tokens[g.Exec] = g.Tokens
	}
	all, layers, perToken := map[string]float64{}, map[int]float64{}, map[uint64]float64{}
	for _, g := range of[resource.GraphEnergy](events) {
		all[g.Phase] += g.ApportionedJ
		if g.Source != resource.Computed || int(g.Tokens) != tokens[g.Exec] || g.JoulesPerToken == nil ||
			math.Abs(*g.JoulesPerToken*float64(g.Tokens)-g.ApportionedJ) > 1e-9*g.ApportionedJ {
			t.Errorf("%+v", g)
			continue
		}
		perToken[g.Exec] = *g.JoulesPerToken
		if len(g.LayerJ) == 0 && len(times[g.Exec]) == 0 {
			continue // it was not timed inside
		}
		in, ns := 0.0, int64(0)
		for layer, joules := range g.LayerJ {
			in, ns = in+joules, ns+times[g.Exec][layer]
			layers[layer] += joules
		}
		layers[-1] += g.ApportionedJ - in
		if len(g.LayerJ) == 0 || in <= 0 || in > g.ApportionedJ*(1+1e-9) {
			t.Errorf("%+v", g)
			continue
		}
		for layer, joules := range g.LayerJ {
			if want := float64(times[g.Exec][layer]) / float64(ns); math.Abs(joules/in-want) > 1e-9 {
				t.Errorf("layer %d of execution %d has %g of the layers' energy, want %g", layer, g.Exec, joules/in,
					want)
			}
		}
	}
	for _, phase := range []string{"prefill", "decode", "mixed"} {
		if math.Abs(all[phase]-phases[phase]) > 1e-9*phases[phase] {
			t.Errorf("executions of %s used %g J, the phase %g J", phase, all[phase], phases[phase])
		}
	}
	var sum resources.Report
	text := llamatap(t, "resource", "summary", dir, "--json").good(t).stdout
	if err := json.Unmarshal([]byte(text), &sum); err != nil {
		t.Fatal(err)
	}
	for _, l := range sum.Layers {
		if l.ApportionedJ == nil || math.Abs(*l.ApportionedJ-layers[l.Layer]) > 1e-9*all["decode"] {
			t.Errorf("layer %d has %v, want %g J", l.Layer, l.ApportionedJ, layers[l.Layer])
		}
	}
	known := 0
	for _, row := range sum.Tokens {
		if row.GraphExec == nil {
			continue
		}
		if known++; row.ApportionedJ == nil || math.Abs(*row.ApportionedJ-perToken[*row.GraphExec]) > 1e-12 {
			t.Errorf("a token of execution %d has %v, want %g J", *row.GraphExec, row.ApportionedJ,
				perToken[*row.GraphExec])
		}
	}
	if known == 0 || len(sum.Layers) < 2 {
		t.Errorf("%d tokens, %d layers", known, len(sum.Layers))
	}
}
