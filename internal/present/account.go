package present

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// Losses is what a run lost; "nothing" where it lost nothing.
func Losses(a *rundir.Account) string {
	var parts []string
	if lost := a.LostTotal(); len(a.Lost) > 0 {
		var causes []string
		for _, l := range a.Lost {
			causes = append(causes, fmt.Sprintf("%d to %s", l.Packets, l.Cause))
		}
		parts = append(parts, fmt.Sprintf("%d of %d tensors, %s of %s (%s)", lost.Packets, a.Selected.Packets,
			Bytes(lost.Bytes), Bytes(a.Selected.Bytes), strings.Join(causes, ", ")))
	}
	if a.Events != nil {
		parts = append(parts, eventLosses(a.Events)...)
	}
	for _, v := range a.Violations {
		parts = append(parts, "the account does not balance: "+v)
	}
	return cmp.Or(strings.Join(parts, "; "), "nothing")
}

func eventLosses(e *rundir.EventAccount) (parts []string) {
	var causes []string
	lost := uint64(0)
	for _, cause := range slices.Sorted(maps.Keys(e.Lost)) {
		lost += e.Lost[cause]
		causes = append(causes, fmt.Sprintf("%d to %s", e.Lost[cause], cause))
	}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d events (%s)", lost, lost+e.Written, strings.Join(causes, ", ")))
	}
	if e.TokensAfter > 0 {
		parts = append(parts, fmt.Sprintf("all events of the %d tokens that were computed after recording stopped",
			e.TokensAfter))
	}
	return parts
}

// Overhead is what recording cost the model, see rundir.TimeAccount; "" where that was not measured.
func Overhead(a *rundir.Account) string {
	least, ok := a.Time.Overhead()
	if !ok {
		return ""
	}
	per := func(ns int64) string { return Nanoseconds(ns / a.Time.Tokens) }
	share, taken := fmt.Sprintf("at least %.2f", 100*least), ""
	if most, ok := a.Time.OverheadMost(); ok {
		share = fmt.Sprintf("%.2f to %.2f", 100*least, 100*most)
		taken = fmt.Sprintf(", at most %s of processor time taken by the collector", per(*a.Time.TakenNS))
	}
	text := fmt.Sprintf("%s %% of the run: per token %s in the tap, %s waiting for the recording", share,
		per(a.Time.TapNS), per(a.Time.WaitNS))
	switch cuts := float64(a.Time.Cuts) / float64(a.Time.Tokens); {
	case a.Time.CutNS > 0:
		text += fmt.Sprintf(", %s in %.1f cuts of the graph", per(a.Time.CutNS), cuts)
	case a.Time.Cuts > 0:
		text += fmt.Sprintf(", and %.1f cuts of the graph, whose cost was not measured", cuts)
	}
	text += fmt.Sprintf("%s (%s)", taken, Plural(a.Time.Tokens, "token"))
	if lost := a.Setup.TapNS + a.Setup.WaitNS; lost > 0 {
		text += "; warm-up " + Nanoseconds(lost)
	}
	return text
}
