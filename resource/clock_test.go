package resource

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestFitClock: a clock that is ahead and goes faster is found within the stated uncertainty, however uneven the way
// there and back is, and the uncertainty is not larger than the best samples allow.
func TestFitClock(t *testing.T) {
	for _, c := range []struct {
		name          string
		offset, drift float64 // ns at time 0; ns per second
	}{{"the same", 0, 0}, {"ahead", 5e12, 0}, {"slower", -3e9, -40_000}, {"faster", 1e6, 80_000}} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			other := func(at int64) int64 { return at + int64(c.offset+c.drift*float64(at)/1e9) }
			var samples []ClockSample
			narrowest := math.Inf(1)
			for at := int64(0); at < 60e9; at += 1e9 {
				there, back := 20e3+random.Int64N(400e3), 20e3+random.Int64N(30e3)
				s := NewClockSample(at, other(at+there), other(at+there+5e3), at+there+5e3+back)
				samples = append(samples, s)
				narrowest = min(narrowest, float64(s.Width())/2)
			}
			fit, ok := FitClock(samples)
			if !ok || !fit.Steady || fit.Samples != 60 {
				t.Fatalf("%+v", fit)
			}
			want := c.offset + c.drift*float64(fit.AtNS)/1e9
			if off := math.Abs(fit.OffsetNS - want); off > fit.OffsetUncertaintyNS+2 {
				t.Errorf("offset %.0f ± %.0f ns, and it is %.0f", fit.OffsetNS, fit.OffsetUncertaintyNS, want)
			}
			if off := math.Abs(*fit.DriftPPB - c.drift); off > *fit.DriftUncertaintyPPB+1 {
				t.Errorf("drift %.0f ± %.0f ppb, and it is %.0f", *fit.DriftPPB, *fit.DriftUncertaintyPPB, c.drift)
			}
			if fit.OffsetUncertaintyNS > 1.1*narrowest || *fit.DriftUncertaintyPPB > 10_000 {
				t.Errorf("± %.0f ns with a sample of ± %.0f, ± %.0f ppb", fit.OffsetUncertaintyNS, narrowest,
					*fit.DriftUncertaintyPPB)
			}
		})
	}
}

// TestFitClockStep: a clock that was set is no clock that drifts.
func TestFitClockStep(t *testing.T) {
	var samples []ClockSample
	for at := int64(0); at < 10e9; at += 1e9 {
		ahead := int64(0)
		if at >= 5e9 {
			ahead = 1e6
		}
		samples = append(samples, NewClockSample(at, at+10e3+ahead, at+12e3+ahead, at+20e3))
	}
	if fit, _ := FitClock(samples); fit.Steady || fit.DriftPPB != nil {
		t.Errorf("a clock that was set by 1 ms: %+v", fit)
	}
	if fit, _ := FitClock(samples[:1]); !fit.Steady || fit.DriftPPB != nil || fit.OffsetUncertaintyNS != 9e3 {
		t.Errorf("one sample: %+v", fit)
	}
	if _, ok := FitClock(nil); ok {
		t.Error("an offset without samples")
	}
}
