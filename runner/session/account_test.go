//go:build linux

package session

import (
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
)

// TestTimeOfSpans: the time of a segment begins where the one before it ended, and that of a run has what the tap did
// before the first graph's entry, so that no more can be lost than there was.
func TestTimeOfSpans(t *testing.T) {
	use := func(first, own, last, rows int64) capture.Use {
		count := func(n int64) map[ggmlhooks.Phase]int64 { return map[ggmlhooks.Phase]int64{ggmlhooks.PhaseDecode: n} }
		return capture.Use{Rows: count(rows), Drafts: count(rows / 2), Rejected: rows / 4, FirstNS: first,
			FirstOwnNS: own, LastNS: last, Run: capture.Flow{OwnNS: own}}
	}
	c := &counter{run: &run{}}
	whole := c.tally(use(1000, 500, 1100, 8)).Time
	if share, ok := whole.Overhead(); whole.WallNS != 600 || !ok || share >= 1 {
		t.Errorf("%+v, overhead %v", whole, share)
	}
	span := useSince(use(1000, 500, 1900, 40), use(1000, 500, 1100, 8))
	if wall := c.tally(span).Time.WallNS; wall != 800 || span.Rejected != 8 || span.Generated() != 8 {
		t.Errorf("a second segment of %d ns, with %d of its drafts rejected and %d tokens generated", wall, span.Rejected,
			span.Generated())
	}
}
