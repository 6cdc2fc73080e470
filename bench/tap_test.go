package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTapOnly: of the table the rows that were asked for, by any part of a name, and nothing that is not there.
func TestTapOnly(t *testing.T) {
	all := Tap{Completion: "completion", LlamaBench: "bench", Table: NewTable(&strings.Builder{})}
	for only, want := range map[string]string{
		"":                "run MINIMAL DETAILED",
		"detailed":        "DETAILED",
		"VERBOSE,llama-b": "run VERBOSE",
		"load of nothing": "",
	} {
		tap := all
		if only != "" {
			tap.Only = strings.Split(only, ",")
		}
		got := map[string]bool{}
		for _, p := range tap.wanted(tap.pairs()) {
			got[p.Test.Name] = true
		}
		for _, name := range strings.Fields(want) {
			if !got[name] {
				t.Errorf("%q: %s is not measured", only, name)
			}
		}
		if only == "detailed" && len(got) != 1 || want == "" && len(got) != 0 {
			t.Errorf("%q: measures %v", only, got)
		}
	}
	all.Only = []string{"nothing"}
	if err := all.Check(); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
}

// TestInterruptedPair: Ctrl-C kills what runs. That, and not how it ended, is why there is no result.
func TestInterruptedPair(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	killed := Side{"", func(context.Context) (Sample, error) {
		interrupt()
		return Sample{}, errors.New("signal: killed")
	}}
	random := rand.New(rand.NewPCG(1, 1))
	_, err := Pair{Base: killed, Test: killed}.Run(ctx, Limits{MinPairs: 1}, random, func(string) {})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestTurnRatios: a model that becomes slower with each turn, and is a tenth slower where it is recorded.
func TestTurnRatios(t *testing.T) {
	var turns []time.Duration
	for i := range 9 {
		took := 1000 + 10*time.Duration(i)
		if i%2 == 0 {
			took = took * 10 / 9
		}
		turns = append(turns, took*time.Millisecond)
	}
	ratios := turnRatios(turns)
	if len(ratios) != 4 {
		t.Fatalf("%d ratios of %d turns", len(ratios), len(turns))
	}
	for _, r := range ratios {
		if math.Abs(r-0.9) > 0.001 {
			t.Errorf("%.4f, not 0.9", r)
		}
	}
	if turnRatios(turns[:2]) != nil {
		t.Error("a turn without one behind it was compared")
	}
}
