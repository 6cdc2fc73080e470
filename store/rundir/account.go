package rundir

import (
	"cmp"
	"fmt"
	"slices"
)

// Account is the outcome of a run, or of a stretch of it: the one place from which its metadata, its summary and
// every reader take what was captured and lost, and what recording cost the model. Warm-ups and probes, which the
// program threw away, stand in Setup alone.
type Account struct {
	// Selected tensors were computed and wanted. They are in a stream, lost, or were recorded and given back.
	Selected Amount  `json:"selected"`
	Captured Amount  `json:"captured"`
	Rotated  *Amount `json:"rotated,omitempty"` // nil: the run gave nothing back
	Lost     []Loss  `json:"lost"`              // by cause, largest first; empty, never null, when nothing was lost
	// Events of the resource log; absent where none were recorded.
	Events *EventAccount `json:"events,omitempty"`
	Time   TimeAccount   `json:"time"`
	Setup  SetupAccount  `json:"setup"`
	// Violations are equations of the account that do not hold: the recording has a defect, and the figures are not
	// to be trusted.
	Violations []string `json:"violations,omitempty"`
}

// Amount is a number of captured tensors, or blocks of them, and their bytes as the model computed them.
type Amount struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// EventAccount is the outcome of resource events.
type EventAccount struct {
	Written uint64            `json:"written"`
	Rotated uint64            `json:"rotated,omitempty"` // of them, given back
	Lost    map[string]uint64 `json:"lost,omitempty"`    // by cause
	// TokensAfter counts the tokens that were computed after recording had stopped: their events were never made,
	// so Lost has none of them.
	TokensAfter int64 `json:"tokens_after,omitempty"`
}

// lossy reports whether events are missing.
func (e *EventAccount) lossy() bool { return e != nil && (len(e.Lost) > 0 || e.TokensAfter > 0) }

// TimeAccount is what recording cost the model. Measured on its threads are the time in the tap's code, the time that
// they waited for the recording, and the cuts of its graphs; together they are the least that it cost. TakenNS bounds
// what the collector took beside that. Not contained are programs in the kernel (BPF, sampling interrupts, page faults
// of sampling) and the caches and memory bandwidth that recording displaces: a comparison with runs that are not
// recorded measures these, too (llamatap bench tap).
type TimeAccount struct {
	TapNS  int64 `json:"tap_ns"`
	WaitNS int64 `json:"wait_ns"`
	// Cuts is how often ggml computed a part of a graph and waited for all of its threads because of the tap alone,
	// and CutNS what that cost: their number times the median cost of one, which is measured during the run. It is
	// 0 where that could not be measured, as on a GPU.
	Cuts  int64 `json:"cuts,omitempty"`
	CutNS int64 `json:"cut_ns,omitempty"`
	// TakenNS is at most the processor time that the collector took from the model's threads: the sum, over intervals
	// of 50 ms, of the lesser of what it used and what they waited for a processor; nil where less
	// than four fifths of the run were watched; otherwise scaled to all of it.
	TakenNS *int64 `json:"taken_ns,omitempty"`
	// RunnableNS is how long the model's threads waited for a processor in these intervals, all together. TapNS, WaitNS
	// and WallNS contain such waits.
	RunnableNS *int64 `json:"runnable_ns,omitempty"`
	// WallNS is the time from the first graph's entry to the last graph's end, with what the tap did for the first
	// before its entry, and what it did and the model waited for the recording behind the last. Tokens are the prompt's
	// and decoded ones of it that this process computed, drafts included.
	WallNS int64 `json:"wall_ns"`
	Tokens int64 `json:"tokens"`
}

// SetupAccount is what was computed and thrown away: before the run proper, or with an execution that failed.
type SetupAccount struct {
	Tokens    int64  `json:"tokens"`
	Discarded Amount `json:"discarded"` // captured, and not part of the run
	Lost      []Loss `json:"lost,omitempty"`
	TapNS     int64  `json:"tap_ns"`
	WaitNS    int64  `json:"wait_ns"`
}

// LostNS is the least time that the model lost.
func (t *TimeAccount) LostNS() int64 { return t.TapNS + t.WaitNS + t.CutNS }

// Overhead is the least share of the run that the model lost, 0 to 1; not ok where that was not measured.
func (t *TimeAccount) Overhead() (share float64, ok bool) {
	if t.WallNS <= 0 || t.Tokens <= 0 {
		return 0, false
	}
	return min(1, float64(t.LostNS())/float64(t.WallNS)), true
}

// OverheadMost is Overhead with all the processor time that the collector may have taken, at most the whole run: a
// thread that no longer waits for the recording may wait for a processor, and then both measured the same time.
func (t *TimeAccount) OverheadMost() (share float64, ok bool) {
	least, ok := t.Overhead()
	if !ok || t.TakenNS == nil {
		return 0, false
	}
	return max(least, min(1, least+float64(*t.TakenNS)/float64(t.WallNS))), true
}

// LostTotal is what was lost, over all causes.
func (a *Account) LostTotal() (sum Amount) {
	for _, l := range a.Lost {
		sum.Packets, sum.Bytes = sum.Packets+l.Packets, sum.Bytes+l.Bytes
	}
	return sum
}

// Recorded is what was captured, with what of it was given back since.
func (a *Account) Recorded() Amount {
	if a.Rotated == nil {
		return a.Captured
	}
	return Amount{a.Captured.Packets + a.Rotated.Packets, a.Captured.Bytes + a.Rotated.Bytes}
}

// Lossy reports whether something is missing that was to be recorded, or the account does not balance.
func (a *Account) Lossy() bool {
	return len(a.Lost) > 0 || len(a.Violations) > 0 || a.Events.lossy()
}

// Check notes whether the account balances: what was captured, what of it was given back, and what was lost are what
// was selected, in packets and in bytes.
func (a *Account) Check() {
	lost, recorded := a.LostTotal(), a.Recorded()
	for _, c := range []struct {
		what                     string
		selected, recorded, lost uint64
	}{
		{"tensors", a.Selected.Packets, recorded.Packets, lost.Packets},
		{"bytes of tensors", a.Selected.Bytes, recorded.Bytes, lost.Bytes},
	} {
		if c.recorded+c.lost != c.selected {
			a.Violations = append(a.Violations, fmt.Sprintf("%d %s were selected, and %d captured and %d lost",
				c.selected, c.what, c.recorded, c.lost))
		}
	}
}

// AddLost adds what was lost for a cause.
func (a *Account) AddLost(cause string, packets, bytes uint64) {
	if packets == 0 && bytes == 0 {
		return
	}
	i := slices.IndexFunc(a.Lost, func(l Loss) bool { return l.Cause == cause })
	if i < 0 {
		i, a.Lost = len(a.Lost), append(a.Lost, Loss{Cause: cause})
	}
	a.Lost[i].Packets, a.Lost[i].Bytes = a.Lost[i].Packets+packets, a.Lost[i].Bytes+bytes
	slices.SortFunc(a.Lost, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Cause, b.Cause))
	})
}
