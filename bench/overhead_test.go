package bench

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestOverheadRow: a run that took twice as long has lost half of its time, and a figure that says less differs.
func TestOverheadRow(t *testing.T) {
	for share, verdict := range map[int64]string{500: "agrees", 2: "differs"} {
		var o Outcome
		for range 8 {
			m := &rundir.Metadata{Tokens: &rundir.Tokens{Prompt: 10, Generated: 90},
				Account: &rundir.Account{Time: rundir.TimeAccount{WaitNS: share, WallNS: 1000, Tokens: 100}}}
			o.Base = append(o.Base, Sample{Decode: 20, Prefill: 40})
			o.Test = append(o.Test, Sample{Decode: 10, Prefill: 20, Recorded: m})
		}
		line, ok := overheadLine("a name", o)
		if !ok || !strings.HasSuffix(line.Figure, verdict) || !strings.Contains(line.Figure, "measured 50.00 %") {
			t.Errorf("%+v, %v", line, ok)
		}
	}
}
