package rundir

import (
	"strings"
	"testing"
	"time"
)

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
			a.Lossy() == (a.LossText() == "nothing") {
			t.Errorf("%s: %q, %s", c.what, a.Violations, a.LossText())
		}
	}
	events := Account{Events: &EventAccount{Written: 3, Lost: map[string]uint64{"rate": 5292}}}
	if events.Check(); !events.Lossy() || !strings.Contains(events.LossText(), "5292 of 5295 events") {
		t.Errorf("events: %s", events.LossText())
	}
	events.Events = &EventAccount{Written: 3, TokensAfter: 180}
	if !events.Lossy() ||
		events.LossText() != "all events of the 180 tokens that were computed after recording stopped" {
		t.Errorf("events of tokens after the stop: %s", events.LossText())
	}
}

// TestOverheadHoldsWaiting: a model that mostly waits has lost that time, whatever the tap's own code took.
func TestOverheadHoldsWaiting(t *testing.T) {
	a := Account{
		Time: TimeAccount{TapNS: int64(time.Millisecond), WaitNS: int64(59 * time.Millisecond),
			WallNS: int64(100 * time.Millisecond), Tokens: 10},
		Setup: SetupAccount{WaitNS: int64(7 * time.Second)},
	}
	share, ok := a.Time.Overhead()
	text := a.OverheadText()
	if !ok || share != 0.6 || !strings.HasPrefix(text, "at least 60.00 % ") ||
		!strings.Contains(text, "5.90 ms waiting") || !strings.Contains(text, "warm-up 7.00 s") {
		t.Errorf("%v %v: %s", share, ok, text)
	}
	a.Time.Cuts = 40
	if text := a.OverheadText(); !strings.HasPrefix(text, "at least 60.00 % ") ||
		!strings.Contains(text, "4.0 cuts of the graph, whose cost was not measured") {
		t.Error(text)
	}
	a.Time.CutNS = int64(20 * time.Millisecond)
	if text := a.OverheadText(); !strings.HasPrefix(text, "at least 80.00 % ") ||
		!strings.Contains(text, "2.00 ms in 4.0 cuts of the graph") {
		t.Error(text)
	}
	if _, ok := (&TimeAccount{WallNS: 5}).Overhead(); ok || (&Account{}).OverheadText() != "" {
		t.Error("an overhead of no tokens")
	}
}
