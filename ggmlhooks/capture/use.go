package capture

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Use is what a run did, by phase.
type Use struct {
	Graphs map[ggmlhooks.Phase]int64
	Rows   map[ggmlhooks.Phase]int64
	NS     map[ggmlhooks.Phase]int64 // graph entry to graph end, measured
	// Drafts is how many of Rows a draft model computed. Rejected is how many decoded rows of the model itself were
	// drafts that the program took back.
	Drafts   map[ggmlhooks.Phase]int64
	Rejected int64
	// AloneRows and AloneNS are those of executions whose tokens are all of the phase: rates are of these, for of a
	// mixed one it is unknown which tokens took how long. They have the time of a draft model's executions, and not its
	// rows, nor drafts of such executions that were rejected.
	AloneRows, AloneNS map[ggmlhooks.Phase]int64

	Requests int64 // that began
	FirstNS  int64 // monotonic time of the run's first graph entry, 0 = none
	// FirstOwnNS is what the tap took for the first execution: its description comes before the graph's entry.
	FirstOwnNS int64
	LastNS     int64 // monotonic time of the run's last graph end
	CutNS      int64 // what one cut of a graph costs, the median of what was measured; 0 = not measured
	// TakenNS is at most the processor time that was taken from the model in WatchedNS, and RunnableNS how long its
	// threads waited for a processor, all together; the recorder leaves them 0.
	TakenNS, RunnableNS, WatchedNS int64
	Run                            Flow                    // of executions that were the run
	Setup                          Flow                    // of those that were set-up
	Attached                       []Attention             // what readers need to recompute attention maps
	Points                         []ggmlhooks.PointRecord // that were selected
	Paths                          []Path                  // how tensors were captured, by name
}

// Flow is the outcome of the selected tensors of executions, and what recording them cost the model. Of executions
// that have ended, Selected is the sum of Written, Refused, Discarded and Losses.
type Flow struct {
	Selected  ggmlhooks.Count // computed and wanted
	Written   ggmlhooks.Count // handed to the stream
	Refused   ggmlhooks.Count // captured, and not written because recording had failed or stopped
	Discarded ggmlhooks.Count // captured and thrown away, because they were set-up
	Losses    map[string]ggmlhooks.Count
	OwnNS     int64 // the tap on the model's threads
	WaitNS    int64 // the model waiting for the recording
	Cuts      int64 // how often ggml stopped within a graph because of the tap
}

// Add adds another flow.
func (f *Flow) Add(g *Flow) {
	f.Selected.Add(g.Selected)
	f.Written.Add(g.Written)
	f.Refused.Add(g.Refused)
	f.Discarded.Add(g.Discarded)
	for cause, n := range g.Losses {
		f.lose(cause, n)
	}
	f.OwnNS, f.WaitNS, f.Cuts = f.OwnNS+g.OwnNS, f.WaitNS+g.WaitNS, f.Cuts+g.Cuts
}

// Since returns what came since an earlier state of the same flow.
func (f *Flow) Since(g *Flow) Flow {
	since := Flow{
		Selected: f.Selected.Minus(g.Selected), Written: f.Written.Minus(g.Written),
		Refused: f.Refused.Minus(g.Refused), Discarded: f.Discarded.Minus(g.Discarded),
		OwnNS: f.OwnNS - g.OwnNS, WaitNS: f.WaitNS - g.WaitNS, Cuts: f.Cuts - g.Cuts,
	}
	for cause, n := range f.Losses {
		if n = n.Minus(g.Losses[cause]); n != (ggmlhooks.Count{}) {
			since.lose(cause, n)
		}
	}
	return since
}

func (f *Flow) lose(cause string, n ggmlhooks.Count) {
	if f.Losses == nil {
		f.Losses = map[string]ggmlhooks.Count{}
	}
	sum := f.Losses[cause]
	sum.Add(n)
	f.Losses[cause] = sum
}

// count is one captured tensor of some bytes.
func count(bytes int) ggmlhooks.Count { return ggmlhooks.Count{Packets: 1, Bytes: uint64(bytes)} }

// end adds what the tap reported at an execution's end. Of one that did not end, what was captured counts as selected.
func (f *Flow) end(x *ggmlhooks.Execution) {
	if !x.Ended {
		f.Selected = f.Written
		f.Selected.Add(f.Refused)
		f.Selected.Add(f.Discarded)
		return
	}
	f.Selected.Add(x.End.Selected)
	for _, l := range x.End.Losses {
		f.lose(l.Cause, l.Count)
	}
	f.OwnNS, f.WaitNS, f.Cuts = x.End.OwnNS, x.End.WaitNS, x.End.Cuts
}

func newUse() Use {
	m := func() map[ggmlhooks.Phase]int64 { return map[ggmlhooks.Phase]int64{} }
	return Use{Graphs: m(), Rows: m(), NS: m(), AloneRows: m(), AloneNS: m(), Drafts: m()}
}

// add counts an execution as what it was. Of one that was thrown away no tokens count, but those of set-up.
func (u *Use) add(x *ggmlhooks.Execution, flow *Flow, thrown bool) {
	var ns int64
	if x.Ended {
		ns = x.End.MonoNS - x.BeganNS()
	}
	u.Graphs[x.Phase]++
	u.NS[x.Phase] += ns
	if thrown {
		if !x.Failed() && !x.CutOff { // else its tokens were not computed
			u.Rows[ggmlhooks.PhaseSetup] += int64(len(x.Rows))
		}
		u.Setup.Add(flow)
		return
	}
	u.Run.Add(flow)
	if len(x.Rows) > 0 && u.FirstNS == 0 {
		u.FirstNS, u.FirstOwnNS = x.MonoNS, max(x.End.OwnNS, 0)
		// The recording of what came before held the model up before the run began.
		u.Run.WaitNS -= x.End.WaitBeforeNS
		u.Setup.WaitNS += x.End.WaitBeforeNS
	}
	u.LastNS = x.BeganNS() + ns
	u.Requests += int64(len(x.Begun))
	for i := range x.Rows {
		u.Rows[x.Rows[i].Phase]++
		if x.Drafts {
			u.Drafts[x.Rows[i].Phase]++
		}
	}
	if hasOnePhase(x) && x.Ended { // else it is unknown how long it took
		if !x.Drafts {
			u.AloneRows[x.Phase] += int64(len(x.Rows))
		}
		u.AloneNS[x.Phase] += ns
	}
}

// Prompt and Generated are the tokens of the run: without what a draft model computed, and without the drafts that
// were rejected.
func (u *Use) Prompt() int64 {
	return u.Rows[ggmlhooks.PhasePrefill] - u.Drafts[ggmlhooks.PhasePrefill]
}

// Generated: see Prompt.
func (u *Use) Generated() int64 {
	return u.Rows[ggmlhooks.PhaseDecode] - u.Drafts[ggmlhooks.PhaseDecode] - u.Rejected
}

// addDevice adds the time that a device computed an execution after its end was reported.
func (u *Use) addDevice(x *ggmlhooks.Execution) {
	ns := x.UntilNS - x.End.MonoNS
	if x.UntilNS == 0 || ns <= 0 {
		return
	}
	u.NS[x.Phase] += ns
	if hasOnePhase(x) {
		u.AloneNS[x.Phase] += ns
	}
	if x.Phase != ggmlhooks.PhaseSetup {
		u.LastNS = max(u.LastNS, x.UntilNS)
	}
}

// hasOnePhase reports whether all tokens of an execution are of its phase.
func hasOnePhase(x *ggmlhooks.Execution) bool {
	return len(x.Rows) > 0 && ggmlhooks.OnePhase(x.Rows) == x.Phase
}

// attach adds what readers need to recompute attention maps, unless it is known.
func (u *Use) attach(a Attention) {
	if (a.Q != "" || a.Map != "") && !slices.Contains(u.Attached, a) {
		u.Attached = append(u.Attached, a)
	}
}
