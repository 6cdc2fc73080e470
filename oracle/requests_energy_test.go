//go:build linux

package oracle

import (
	"encoding/json"
	"math"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
)

// TestRequestEnergy: what a GPU's counter says is divided among the requests of two slots, other executions and the
// rest, and nothing is left. A request has the shares of its rows, counted by the server's answers.
func TestRequestEnergy(t *testing.T) {
	fakeGPU(t)
	s := serve(t, []string{"--tap-requests", "--tap-resource-level", "MINIMAL"}, "-np", "2", "-c", "2048", "-t", "1",
		"--no-webui")
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
	s.stop()
	dir := runDirs(t, s.out)[0]
	counter := 0.0
	for _, e := range of[resource.GPUSample](eventsOf(t, filepath.Join(dir, "resource.jsonl"))) {
		if e.EnergyJ != nil {
			counter += *e.EnergyJ
		}
	}
	var said struct {
		Requests []struct {
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
}
