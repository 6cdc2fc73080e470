package host

import (
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// TestNotesOfOne: what there is once is counted as one.
func TestNotesOfOne(t *testing.T) {
	r := &Report{
		System: &Source{Untimed: 1, Snapshots: 1,
			Origins: map[string]int64{resource.OriginPlain: 1, resource.OriginProc: 1}},
		Bounds:     &Bounds{Corrected: 1, WithoutSlot: 1, Odd: 1, Unusable: 1, TotalsDiffer: 1},
		Importance: &Importance{LeftOut: 1},
		OffCPU:     &TopIDs{Beyond: 1, Entries: 9, Forgotten: 1},
		Faults:     &TopIDs{Forgotten: 1},
	}
	r.note(1)
	notes := strings.Join(r.Notes, "\n")
	plural := regexp.MustCompile(`\b1 (\S+ )?(snapshots|devices|buckets|times) .*`)
	if bad := plural.FindAllString(notes, -1); bad != nil {
		t.Errorf("%q", bad)
	}
	if len(r.Notes) < 12 {
		t.Errorf("%d notes:\n%s", len(r.Notes), notes)
	}
}
