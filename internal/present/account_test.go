package present

import (
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

func TestLosses(t *testing.T) {
	for _, c := range []struct {
		account rundir.Account
		want    string
	}{
		{rundir.Account{}, "nothing"},
		{rundir.Account{Events: &rundir.EventAccount{Written: 3}}, "nothing"},
		{rundir.Account{Selected: rundir.Amount{Packets: 10, Bytes: 4096},
			Lost: []rundir.Loss{{Cause: "pool_full", Packets: 5, Bytes: 1024}, {Cause: "disk_full", Packets: 1}}},
			"6 of 10 tensors, 1.00 KiB of 4.00 KiB (5 to pool_full, 1 to disk_full)"},
		{rundir.Account{Events: &rundir.EventAccount{Written: 3, Lost: map[string]uint64{"rate": 5292}},
			Violations: []string{"x"}}, "5292 of 5295 events (5292 to rate); the account does not balance: x"},
		{rundir.Account{Events: &rundir.EventAccount{Written: 3, TokensAfter: 180}},
			"all events of the 180 tokens that were computed after recording stopped"},
	} {
		got := Losses(&c.account)
		if got != c.want || c.account.Lossy() == (got == "nothing") {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestOverheadHoldsWaiting: a model that mostly waits has lost that time, whatever the tap's own code took.
func TestOverheadHoldsWaiting(t *testing.T) {
	a := rundir.Account{
		Time: rundir.TimeAccount{TapNS: int64(time.Millisecond), WaitNS: int64(59 * time.Millisecond),
			WallNS: int64(100 * time.Millisecond), Tokens: 10},
		Setup: rundir.SetupAccount{WaitNS: int64(7 * time.Second)},
	}
	share, ok := a.Time.Overhead()
	if text := Overhead(&a); !ok || share != 0.6 || !strings.HasPrefix(text, "at least 60.00 % ") {
		t.Errorf("%v %v: %s", share, ok, text) // older runs do not know what the collector took
	}
	taken := int64(5 * time.Millisecond)
	a.Time.TakenNS = &taken
	text := Overhead(&a)
	if !strings.HasPrefix(text, "60.00 to 65.00 % ") ||
		!strings.Contains(text, "at most 500 µs of processor time") ||
		!strings.Contains(text, "5.90 ms waiting") || !strings.Contains(text, "warm-up 7.00 s") {
		t.Errorf("%v %v: %s", share, ok, text)
	}
	a.Time.Cuts = 40
	if text := Overhead(&a); !strings.HasPrefix(text, "60.00 to 65.00 % ") ||
		!strings.Contains(text, "4.0 cuts of the graph, whose cost was not measured") {
		t.Error(text)
	}
	a.Time.CutNS = int64(20 * time.Millisecond)
	if text := Overhead(&a); !strings.HasPrefix(text, "80.00 to 85.00 % ") ||
		!strings.Contains(text, "2.00 ms in 4.0 cuts of the graph") {
		t.Error(text)
	}
	if _, ok := (&rundir.TimeAccount{WallNS: 5}).Overhead(); ok || Overhead(&rundir.Account{}) != "" {
		t.Error("an overhead of no tokens")
	}
}
