package label

import "testing"

func TestNamesRoundTrip(t *testing.T) {
	for c := ComponentOther; c <= ComponentCache; c++ {
		if got, err := ParseComponent(c.String()); err != nil || got != c {
			t.Errorf("component %v: %v, %v", c, got, err)
		}
	}
	for p := PhaseUnknown; p <= PhaseTeardown; p++ {
		if got, err := ParsePhase(p.String()); err != nil || got != p {
			t.Errorf("phase %v: %v, %v", p, got, err)
		}
	}
}
