package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestOverheadRow: a run that took twice as long has lost half of its time, and bounds that do not hold that differ.
func TestOverheadRow(t *testing.T) {
	for _, c := range []struct {
		lost, taken int64
		verdict     string
	}{{500, 0, "agrees"}, {2, 0, "differs"}, {2, 600, "agrees"}, {2, 400, "differs"}, {600, 100, "differs"}} {
		var o Outcome
		for range 12 {
			m := &rundir.Metadata{Tokens: &rundir.Tokens{Prompt: 10, Generated: 90},
				Account: &rundir.Account{Time: rundir.TimeAccount{WaitNS: c.lost, TakenNS: &c.taken, WallNS: 1000,
					Tokens: 100}}}
			o.Base = append(o.Base, Sample{Decode: 20, Prefill: 40})
			o.Test = append(o.Test, Sample{Decode: 10, Prefill: 20, Recorded: m})
		}
		line, ok := overheadLine("a name", o)
		if !ok || !strings.HasSuffix(line.Figure, c.verdict) || !strings.Contains(line.Figure, "measured 50.00 %") {
			t.Errorf("%+v, %v", line, ok)
		}
		for i := range o.Test {
			if o.Test[i].Recorded.Account.Time.TakenNS = nil; i != 2 && i != 6 {
				continue
			}
			line, ok = overheadLine("a name", o)
			if want := fmt.Sprintf("%d of 12 runs", i+1); !ok || !strings.Contains(line.Figure, want) ||
				strings.Contains(line.Figure, "not resolved") != (i == 6) {
				t.Errorf("%+v, %v without the upper bound in %d runs", line, ok, i+1)
			}
		}
	}
}

// TestOverheadOfFewRuns: fewer than six runs agree with nothing and differ from nothing, however clear they look.
func TestOverheadOfFewRuns(t *testing.T) {
	for _, lost := range []int64{2, 500} {
		var o Outcome
		for n := 1; n <= 6; n++ {
			m := &rundir.Metadata{Tokens: &rundir.Tokens{Prompt: 10, Generated: 90},
				Account: &rundir.Account{Time: rundir.TimeAccount{WaitNS: lost, TakenNS: new(int64(0)), WallNS: 1000,
					Tokens: 100}}}
			o.Base = append(o.Base, Sample{Decode: 20, Prefill: 40})
			o.Test = append(o.Test, Sample{Decode: 10, Prefill: 20, Recorded: m})
			line, ok := overheadLine("a name", o)
			if open := strings.HasSuffix(line.Figure, "; not resolved: fewer than 6 pairs"); !ok || open != (n < 6) {
				t.Errorf("of %d runs: %+v, %v", n, line, ok)
			}
		}
	}
}
