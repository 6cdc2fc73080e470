package rundir

import "testing"

// TestAccountBalances: what was captured and lost must be what was selected, in packets and in bytes; what does not
// is recorded.
func TestAccountBalances(t *testing.T) {
	for _, c := range []struct {
		what       string
		captured   Amount
		lost       []Loss
		violations int
	}{
		{"whole", Amount{10, 100}, nil, 0},
		{"lossy", Amount{4, 50}, []Loss{{"pool_full", 5, 40}, {"disk_full", 1, 10}}, 0},
		{"a tensor too few", Amount{4, 60}, []Loss{{"pool_full", 5, 40}}, 1},
		{"bytes too many", Amount{5, 60}, []Loss{{"pool_full", 5, 50}}, 1},
		{"both", Amount{}, nil, 2},
	} {
		a := Account{Selected: Amount{10, 100}, Captured: c.captured}
		for _, l := range c.lost {
			a.AddLost(l.Cause, l.Packets, l.Bytes)
		}
		a.Check()
		if len(a.Violations) != c.violations || a.Lossy() != (c.violations > 0 || len(c.lost) > 0) ||
			a.LostTotal() != (Amount{10 - c.captured.Packets, 100 - c.captured.Bytes}) && c.violations == 0 {
			t.Errorf("%s: %q, %v lost", c.what, a.Violations, a.LostTotal())
		}
	}
}
