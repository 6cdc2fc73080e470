package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// The phases of intervals that are of no single one.
const (
	phaseMixed   = "mixed"    // graphs of several phases were computed in it
	phaseNone    = "no graph" // none was
	phaseUnknown = "unknown"  // it is not known when it was
)

// order is the order of phases in the report, those with other names in between.
var order = []string{resources.PhaseSetup, "prefill", "decode", "maintenance", phaseMixed, phaseNone, phaseUnknown}

// join assigns what happened to phases, if the run directory has times of graphs; else a note says what is missing.
func (a *state) join() error {
	if a.Run == "" {
		return nil
	}
	r := a.report
	if m, err := rundir.ReadMetadata(a.Run); err == nil {
		r.Model = m.Model.Name
	}
	block, system := newIntervals(a.report.Block), newIntervals(a.report.System)
	graphs, err := addGraphs(a.Run, block, system)
	if errors.Is(err, resources.ErrNoLog) {
		offset := 0.0
		for _, source := range []*Source{r.Block, r.System} {
			if source != nil && offset == 0 {
				offset = source.offset
			}
		}
		if graphs, err = addWaits(a.Run, offset, block, system); errors.Is(err, fs.ErrNotExist) {
			r.Notes = append(r.Notes, "what happened in which phase is not known: the run has neither "+
				rundir.EventsName+" nor "+rundir.WaitsName+
				" with times of graphs; record with --tap-resource-level MINIMAL or more beside --tap-host")
			return nil
		}
	}
	if err != nil {
		return err
	}
	if graphs.timed == 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("what happened in which phase is not known: none of the %d graphs in "+
			"the run has a time", graphs.all))
		return nil
	}
	if n := graphs.all - graphs.timed; n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d graphs have no time, as a device went on behind them: they "+
			"are in no phase", n, graphs.all))
	}
	return a.phases(block, system)
}

// graphCount is the number of executions in a log.
type graphCount struct{ all, timed int64 }

// addGraphs puts the executions of a run's log into the intervals. Tokens are the run's: none of an execution that
// failed or that a draft model computed, nor drafts that were rejected, which were those of their context's last one.
func addGraphs(run string, into ...*intervals) (n graphCount, err error) {
	type span struct {
		begin, end float64
		phase      string
	}
	last := map[uint32]span{}
	err = resources.EachEvent(context.Background(), run, func(kind resource.Kind, text []byte) error {
		if kind != resource.KindGraph {
			return nil
		}
		event, err := resource.Decode(text)
		graph, ok := event.(*resource.Graph)
		if err != nil || !ok {
			return nil
		}
		ctx := resources.ContextOf(graph.Ctx)
		if before, ok := last[ctx]; ok && graph.Rejected > 0 {
			for _, in := range into {
				in.add(before.begin, before.end, before.phase, -int(graph.Rejected))
			}
		}
		delete(last, ctx)
		n.all++
		if graph.DurationNS == nil || graph.UnixNS <= 0 {
			return nil
		}
		n.timed++
		tokens := graph.Tokens
		if graph.Status != 0 || graph.Drafts {
			tokens = 0
		}
		begin := float64(graph.UnixNS) / 1e9
		of := span{begin, begin + float64(max(*graph.DurationNS, 1))/1e9, graph.Phase}
		for _, in := range into {
			in.add(of.begin, of.end, graph.Phase, tokens)
		}
		if !graph.Drafts && len(last) < maxContexts {
			last[ctx] = of
		}
		return nil
	})
	return n, err
}

// addWaits puts the executions of a run's waits into the intervals. Their times are of CLOCK_MONOTONIC; offset, in
// seconds, makes them Unix time, and is 0 where it is not known.
func addWaits(run string, offset float64, into ...*intervals) (n graphCount, err error) {
	err = open(filepath.Join(run, rundir.WaitsName), "record with --tap-host", &Lines{}, func(text []byte) error {
		var line resource.WaitLine
		if err := decode(text, &line); err != nil || line.Kind != resource.WaitGraph {
			return err
		}
		n.all++
		if offset == 0 || line.BeginNS <= 0 || line.EndNS <= line.BeginNS {
			return nil
		}
		n.timed++
		for _, in := range into {
			in.add(offset+float64(line.BeginNS)/1e9, offset+float64(line.EndNS)/1e9, line.Phase, line.TokenCount)
		}
		return nil
	})
	return n, err
}

// maxContexts bounds the contexts whose last execution is known.
const maxContexts = 1 << 12

// interval is the time of a snapshot, and what was computed in it.
type interval struct {
	from, to float64
	tokens   float64 // a token whose graph reaches beyond it counts by its share
	phase    string  // "" for none yet
}

// intervals are those of the snapshots of a file, of which at most maxSamples are kept.
type intervals struct {
	all    []interval // in the order of the file
	byTime []int      // in the order of their ends
	widest float64
}

// newIntervals takes those of a file; nil gives none.
func newIntervals(s *Source) *intervals {
	in := &intervals{}
	if s == nil {
		return in
	}
	in.all = s.intervals
	for i := range in.all {
		if wide := in.all[i].to - in.all[i].from; wide > 0 { // and not unknown
			in.byTime = append(in.byTime, i)
			in.widest = max(in.widest, wide)
		}
	}
	slices.SortStableFunc(in.byTime, func(a, b int) int { return cmp.Compare(in.all[a].to, in.all[b].to) })
	return in
}

// add adds the execution of a graph.
func (in *intervals) add(from, to float64, phase string, tokens int) {
	at, _ := slices.BinarySearchFunc(in.byTime, from, func(i int, t float64) int {
		if in.all[i].to <= t {
			return -1
		}
		return 1
	})
	for _, i := range in.byTime[at:] {
		v := &in.all[i]
		if v.to-in.widest >= to {
			return // none behind begins before the graph's end
		}
		share := (min(v.to, to) - max(v.from, from)) / (to - from)
		if share <= 0 {
			continue
		}
		v.tokens += share * float64(tokens)
		switch v.phase {
		case "":
			v.phase = phase
		case phase:
		default:
			v.phase = phaseMixed
		}
	}
}

// phaseOf returns the phase of a snapshot, by its number in the file, and the tokens that were computed in it.
func (in *intervals) phaseOf(number int64) (phase string, tokens float64) {
	if number >= int64(len(in.all)) || !(in.all[number].from < in.all[number].to) {
		return phaseUnknown, 0
	}
	v := &in.all[number]
	if v.phase == "" {
		return phaseNone, 0
	}
	return v.phase, v.tokens
}

// phaseSum is a row in the making.
type phaseSum struct {
	PhaseRow
	latency        Latency
	offCPU, faults float64
	unknown        number // ms in futexes for a reason that is unknown
	known          [metrics]bool
}

// phases reads the files once more, and adds up what happened in each phase.
func (a *state) phases(block, system *intervals) error {
	sums := map[string]*phaseSum{}
	of := func(in *intervals, number int64) (*phaseSum, float64) {
		phase, tokens := in.phaseOf(number)
		if sums[phase] == nil {
			sums[phase] = &phaseSum{PhaseRow: PhaseRow{Phase: phase}}
		}
		return sums[phase], tokens
	}
	number := int64(0)
	if a.Block != "" {
		err := a.eachBlock(&Lines{}, func(s *blockSnapshot) {
			if number < a.report.Block.Snapshots { // what was written since is not in the report
				sum, tokens := of(block, number)
				sum.BlockIntervals++
				sum.BlockSeconds += max(0, orZero(s.seconds))
				sum.BlockTokens += tokens
				whole := s.allDevices()
				sum.latency.merge(whole.latency)
				sum.Requests += whole.requests
			}
			number++
		}, func(*blockSnapshot) {})
		if err != nil {
			return err
		}
	}
	number = 0
	if a.System != "" {
		err := a.eachSystem(&Lines{}, func(s *systemSnapshot) {
			if number < a.report.System.Snapshots {
				sum, tokens := of(system, number)
				sum.addSystem(s, tokens)
			}
			number++
		}, func(*systemSnapshot) {})
		if err != nil {
			return err
		}
	}
	for _, sum := range sums {
		a.report.Phases = append(a.report.Phases, sum.row(a.Percentiles))
	}
	slices.SortFunc(a.report.Phases, comparePhases)
	return nil
}

// comparePhases orders them as a run goes through them.
func comparePhases(a, b PhaseRow) int {
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return slices.Index(order, phaseMixed)
	}
	if x, y := place(a.Phase), place(b.Phase); x != y {
		return x - y
	}
	return strings.Compare(a.Phase, b.Phase)
}

func (p *phaseSum) addSystem(s *systemSnapshot, tokens float64) {
	p.SystemIntervals++
	p.SystemSeconds += max(0, orZero(s.seconds))
	p.SystemTokens += tokens
	if s.offCPU != nil {
		p.known[metricOffCPU] = true
		p.offCPU += orZero(s.metric[metricOffCPU])
		p.unknown = number{p.unknown.v + s.unknown.v, p.unknown.known || s.unknown.known}
	}
	if s.faults != nil {
		p.known[metricFaults] = true
		p.faults += sum(s.faults)
	}
}

// orZero is 0 where a figure is not known.
func orZero(v float64) float64 {
	if v != v {
		return 0
	}
	return v
}

// row makes the row of a sum.
func (p *phaseSum) row(percentiles []float64) PhaseRow {
	row := p.PhaseRow
	perToken := func(v, tokens float64) *float64 {
		if tokens <= 0 {
			return nil
		}
		return new(v / tokens)
	}
	if row.BlockIntervals > 0 {
		row.RequestsPerToken = perToken(float64(row.Requests), row.BlockTokens)
	}
	if mean, ok := p.latency.Mean(); ok {
		row.MeanUS = &mean
	}
	row.Percentiles = p.latency.percentiles(percentiles)
	if p.known[metricOffCPU] {
		row.OffCPUMS, row.OffCPUPerToken = &p.offCPU, perToken(p.offCPU, row.SystemTokens)
	}
	if p.unknown.known {
		row.FutexUnknownMS = &p.unknown.v
	}
	if p.known[metricFaults] {
		row.Faults, row.FaultsPerToken = &p.faults, perToken(p.faults, row.SystemTokens)
	}
	return row
}
