package analyze

import (
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

// TestLabels: a short run calls weights low by mrm-trace's rule, and insufficient by the estimator; long ones agree.
func TestLabels(t *testing.T) {
	many := func(v float64, n int) (all []float64) {
		for range n {
			all = append(all, v)
		}
		return all
	}
	const high, medium, low, insufficient = memtrace.HighMRM, memtrace.MediumMRM, memtrace.LowMRM,
		memtrace.InsufficientMRM
	for name, c := range map[string]struct {
		ended, censored []float64
		written, once   int64
		plain           memtrace.Suitability
		censor          memtrace.Suitability
	}{
		"weights of a second":            {nil, many(0.9, 40), 40, 40, low, insufficient},
		"weights of five seconds":        {nil, many(5, 40), 40, 40, medium, medium},
		"weights of a minute":            {nil, many(60, 40), 40, 40, high, high},
		"weights that were freed":        {many(30, 4), nil, 4, 4, high, high},
		"activations":                    {many(0.001, 500), many(0.0005, 3), 5, 0, low, low},
		"cache, rewritten":               {many(2, 90), many(2, 1), 100, 60, medium, medium},
		"short lives, once":              {many(0.2, 1000), many(0.1, 5), 1000, 1000, low, low},
		"half of them go on":             {many(0.2, 10), many(0.9, 30), 40, 40, low, insufficient},
		"a median that is known, no p99": {many(2, 60), many(3, 40), 100, 90, medium, medium},
	} {
		s := subject{Lives: lives(1, c.ended, c.censored), Written: c.written, WrittenOnce: c.once}
		if got, ok := s.metrics().Label(memtrace.Thresholds{}); !ok || got != c.plain {
			t.Errorf("%s: %s, want %s", name, got, c.plain)
		}
		if got, ok := s.metrics().LabelCensored(memtrace.Thresholds{}); !ok || got != c.censor {
			t.Errorf("%s: %s by Kaplan and Meier, want %s", name, got, c.censor)
		}
	}
	read := subject{}
	if got, ok := read.metrics().Label(memtrace.Thresholds{}); ok {
		t.Errorf("what nobody wrote is %s", got)
	}
	if got, ok := read.metrics().LabelCensored(memtrace.Thresholds{}); ok {
		t.Errorf("what nobody wrote is %s", got)
	}
	own := subject{Lives: lives(1, nil, many(0.9, 40)), Written: 40, WrittenOnce: 40}
	if got, _ := own.metrics().LabelCensored(memtrace.Thresholds{HighWriteOnce: 0.8, MediumWriteOnce: 0.5,
		HighP99NS:   5e8,
		MediumP50NS: 1e8}); got != high {
		t.Errorf("with other thresholds: %s", got)
	}
}
