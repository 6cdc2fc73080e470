package bench

import (
	"testing"
)

// TestStepAt finds steps by the clock: none before, between and behind them, and none without a clock.
func TestStepAt(t *testing.T) {
	v := Visit{Repetitions: []Repetition{
		{MonoNS: 1000, NS: 100, Steps: []Step{{AtNS: 10, NS: 40}, {AtNS: 60, NS: 40}}},
		{MonoNS: 2000, NS: 100, Steps: []Step{{AtNS: 0, NS: 100}}},
		{NS: 1 << 40, Steps: []Step{{NS: 1 << 40}}},
	}}
	first, second := &v.Repetitions[0].Steps[0], &v.Repetitions[0].Steps[1]
	for ns, want := range map[int64]*Step{
		999: nil, 1005: nil, 1010: first, 1050: first, 1055: nil, 1060: second, 1100: second, 1101: nil,
		2050: &v.Repetitions[1].Steps[0], 5000: nil,
	} {
		if got := v.stepAt(ns); got != want {
			t.Errorf("at %d: %p, want %p", ns, got, want)
		}
	}
}
