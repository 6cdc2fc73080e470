package memory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// Phase is what samples say of a phase of a recorded program: from a marker to the next one, all markers of one
// name together.
type Phase struct {
	Name     string  `json:"phase"`    // of the marker; "": before the first one
	Inferred bool    `json:"inferred"` // nobody set the marker
	Markers  int     `json:"markers"`  // how often it began
	Begin    int64   `json:"begin_ns"` // its first beginning, in the time of trace.parquet
	Seconds  float64 `json:"seconds"`
	// Samples are those of each collector in each type of region, most first; none: there was no sample.
	Samples []PhaseSamples `json:"samples"`
	spent   int64
}

// PhaseSamples are the samples of a collector in a type of region.
type PhaseSamples struct {
	Collector string                 `json:"collector"`
	Source    string                 `json:"source"` // as of Samples
	Type      string                 `json:"region_type"`
	Samples   int64                  `json:"samples"`
	Events    map[string]EventCounts `json:"events"`
}

// phases gathers samples by phase.
type phases struct {
	marks      []memtrace.Mark
	begin, end int64 // of the recording; 0: unknown
	inferred   table.Vector
	counts     map[phaseKey]*[8]memtrace.Estimate // by memtrace.AccessOp
}

type phaseKey struct {
	name string
	from memtrace.Collector
	kind memtrace.RegionType
}

// phaseWords are the texts of the column of phases that are inferred.
var phaseWords = []string{memtrace.WeightLoad.String(), memtrace.Generation.String()}

// readPhases reads a run's markers; nil: it has none.
func readPhases(dir string) (*phases, error) {
	file, err := rundir.OpenFile(filepath.Join(dir, rundir.MarksName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &phases{counts: map[phaseKey]*[8]memtrace.Estimate{}}
	if p.marks, err = memtrace.ReadMarks(file); err != nil {
		return nil, fmt.Errorf("%s: %w; 'llamatap verify %s' says which files are not what was recorded",
			filepath.Join(dir, rundir.MarksName), err, dir)
	}
	if len(p.marks) == 0 {
		return nil, nil
	}
	var use struct {
		Begin int64 `json:"begin_ns"`
		End   int64 `json:"end_ns"`
	}
	// a recorder that was killed left none
	if m, err := rundir.ReadMetadata(dir); err == nil && json.Unmarshal(m.Extra["markers"], &use) == nil {
		p.begin, p.end = use.Begin, use.End
	}
	return p, nil
}

// name is the phase at a time.
func (p *phases) name(ns int64) string {
	if at := memtrace.MarkAt(p.marks, ns); at >= 0 {
		return p.marks[at].Name
	}
	return ""
}

// fill gives rows the phases that are inferred: those of markers stand in the table.
func (p *phases) fill(r *rows) {
	if p == nil || !p.marks[0].Inferred {
		return
	}
	v := &p.inferred
	v.Words, v.Codes, v.Valid = phaseWords, v.Codes[:0], v.Valid[:0]
	for _, ns := range r.columns[memtrace.TraceTime].Ints[:r.n] {
		code := -1
		if at := memtrace.MarkAt(p.marks, ns); at >= 0 {
			code = slices.Index(phaseWords, p.marks[at].Phase)
		}
		v.Codes, v.Valid = append(v.Codes, int32(code)), append(v.Valid, code >= 0)
	}
	r.columns[memtrace.TracePhase] = v
}

// add takes a sample in.
func (p *phases) add(w *witness, weight int64) {
	if p == nil {
		return
	}
	key := phaseKey{p.name(w.ns), w.from, w.kind}
	ops := p.counts[key]
	if ops == nil {
		ops = &[8]memtrace.Estimate{}
		p.counts[key] = ops
	}
	ops[w.op].Add(max(weight, 1))
}

// fillPhases writes out what samples say of phases.
func (s *sampleSums) fillPhases(r *Report) {
	p := s.phases
	if p == nil {
		return
	}
	begin, end := p.begin, p.end
	for _, by := range s.by {
		if by != nil && by.Samples > 0 {
			if end = max(end, by.Last); begin == 0 || by.First < begin {
				begin = by.First
			}
		}
	}
	all := &r.Phases
	spent := func(name string, from, to int64) *Phase {
		i := slices.IndexFunc(*all, func(p Phase) bool { return p.Name == name })
		if i < 0 {
			i = len(*all)
			*all = append(*all, Phase{Name: name, Begin: from, Samples: []PhaseSamples{}})
		}
		of := &(*all)[i]
		of.spent += max(to-from, 0)
		of.Seconds = float64(of.spent) / 1e9
		return of
	}
	if begin != 0 && begin < p.marks[0].TimeNS {
		spent("", begin, p.marks[0].TimeNS)
	}
	for i, m := range p.marks {
		to := max(end, m.TimeNS)
		if i+1 < len(p.marks) {
			to = p.marks[i+1].TimeNS
		}
		of := spent(m.Name, m.TimeNS, to)
		of.Markers++
		of.Inferred = m.Inferred
	}
	for i := range *all {
		of := &(*all)[i]
		for key, ops := range p.counts {
			if key.name == of.Name {
				phaseSamples := PhaseSamples{Collector: key.from.String(), Source: s.source(key.from),
					Type: key.kind.String()}
				var sum memtrace.Estimate
				phaseSamples.Events, sum = s.eventsOf(key.from, ops[:])
				phaseSamples.Samples = sum.Samples
				of.Samples = append(of.Samples, phaseSamples)
			}
		}
		slices.SortFunc(of.Samples, func(a, b PhaseSamples) int {
			return cmp.Or(cmp.Compare(a.Collector, b.Collector), cmp.Compare(b.Samples, a.Samples),
				cmp.Compare(a.Type, b.Type))
		})
	}
	if p.marks[0].Inferred {
		r.note("nobody set a marker (llamatap memory mark): the phases are inferred from when a mapped model file " +
			"was read last")
	}
}

// phaseRows are the rows of the table of phases as CSV, one for each collector and type of region; a phase without
// samples has one.
func phaseRows(r *Report) (head []string, rows [][]any) {
	for i := range r.Phases {
		p := &r.Phases[i]
		of := []any{p.Name, p.Inferred, p.Markers, p.Begin, p.Seconds}
		for k := range p.Samples {
			s := &p.Samples[k]
			rows = append(rows, append(slices.Clone(of), s.Collector, s.Type, s.Samples, s.events(),
				eventText(s.Events, "read", ""), eventText(s.Events, "write", "")))
		}
		if len(p.Samples) == 0 {
			rows = append(rows, append(of, nil, nil, 0, nil, nil, nil))
		}
	}
	return []string{"phase", "inferred", "markers", "begin_ns", "seconds", "collector", "region_type", "samples",
		"events", "reads", "writes"}, rows
}

// events is how many there were, of all ops.
func (s *PhaseSamples) events() string {
	sum := 0.0
	for _, e := range s.Events {
		sum += e.Events
	}
	return strconv.FormatFloat(sum, 'f', 0, 64)
}

// writePhaseTable writes the table of phases for people.
func writePhaseTable(out *present.Text, r *Report) {
	rows := [][]string{{"phase", "time", "samples of", "region type", "samples", "samples/s", "events", "reads",
		"writes"}}
	for i := range r.Phases {
		p := &r.Phases[i]
		name := p.Name
		switch {
		case name == "":
			name = "(before the first marker)"
		case p.Inferred:
			name += " (inferred)"
		}
		for k := range p.Samples {
			s := &p.Samples[k]
			rate := "-"
			if p.Seconds > 0 {
				rate = fmt.Sprintf("%.4g", float64(s.Samples)/p.Seconds)
			}
			rows = append(rows, []string{name, present.Seconds(p.Seconds), s.Collector, s.Type,
				strconv.FormatInt(s.Samples, 10), rate, s.events(), eventText(s.Events, "read", "-"),
				eventText(s.Events, "write", "-")})
		}
		if len(p.Samples) == 0 {
			rows = append(rows, []string{name, present.Seconds(p.Seconds), "-", "-", "0", "-", "-", "-", "-"})
		}
	}
	if len(rows) > 1 {
		out.Table(rows)
		return
	}
	out.Line("note    there are no phases in this run: 'llamatap memory mark NAME' sets a marker in a live recording " +
		"of 'llamatap memory record'")
}
