package bench

import (
	"fmt"

	"github.com/llamatap/llamatap/store/rundir"
)

// Names of the runs that record a ledger.
const (
	ledgerRows    = "ledger in rows"
	ledgerWindows = "ledger in windows"
)

// ledgerUse is what metadata.json says of a ledger.
type ledgerUse struct {
	Accesses int64 `json:"accesses"`
	Rows     int64 `json:"rows"`
	Bytes    int64 `json:"bytes"`
}

// ledgerDetails prints what the metadata of runs with a ledger contain, the median over the runs.
func (t Tap) ledgerDetails(name string, o Outcome) {
	if name != ledgerRows && name != ledgerWindows {
		return
	}
	var perRow, rows, first, rebuilt, entered []float64
	for _, s := range o.Test {
		m := s.Recorded
		if m == nil || m.Tap == nil {
			return
		}
		use := extra[ledgerUse](m, "ledger")
		if use.Rows == 0 || m.Tap.Graphs == nil || m.Tap.Rebuilt == nil || *m.Tap.Graphs == 0 ||
			*m.Tap.Executions == 0 {
			return
		}
		perRow = append(perRow, float64(use.Bytes)/float64(use.Rows))
		rows = append(rows, float64(use.Rows)/(float64(inGraphs(m))/1e9))
		if again := *m.Tap.Rebuilt; again > 0 {
			rebuilt = append(rebuilt, float64(*m.Tap.RebuiltNS)/1e3/float64(again))
		}
		if whole := *m.Tap.Graphs - *m.Tap.Rebuilt; whole > 0 {
			first = append(first, float64(*m.Tap.DescribeNS-*m.Tap.RebuiltNS)/1e3/float64(whole))
		}
		entered = append(entered, float64(*m.Tap.HookNS-*m.Tap.DescribeNS-*m.Tap.CallNS)/1e3/float64(*m.Tap.Executions))
	}
	gate, verdict := "≤ 1", under(median(perRow), 1)
	if name == ledgerWindows { // few rows, of which each says more
		gate, verdict = "", ""
	}
	t.row("    bytes of the table per row, "+name, fmt.Sprintf("%.2f", median(perRow)), gate, verdict)
	t.row("    rows per second of graphs, "+name, fmt.Sprintf("%.0f", median(rows)), "", "")
	graphs := func(which string, us []float64) {
		if len(us) > 0 {
			t.row("    tap on the model's thread per "+which+" graph, "+name, fmt.Sprintf("%.1f µs", median(us)),
				"≤ 20 µs", under(median(us), 20))
		}
	}
	graphs("rebuilt", rebuilt)
	graphs("first", first)
	t.row("    tap on the model's thread per execution, "+name, fmt.Sprintf("%.1f µs", median(entered)), "≤ 2 µs",
		under(median(entered), 2))
}

// inGraphs is the time in the graphs of a run, in nanoseconds.
func inGraphs(m *rundir.Metadata) int64 { return m.Phases["decode"].NS + m.Phases["prefill"].NS }
