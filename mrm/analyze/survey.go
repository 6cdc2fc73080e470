package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// survey is what a run's tables contain of its memory.
type survey struct {
	Dir            string
	RunID, ModelID string
	figureData
	// Tokens are of all executions that the tables count, which set-up is among.
	Tokens int64
	span
	Regions []region
	// From says what lives and accesses were taken from: trace or regions.
	From string
	// Notes are sentences on what could not be computed.
	Notes []string
	// WriteMarked writes what samples say of the phases that markers name, as CSV; nil: the run has no markers.
	// Measure sets it.
	WriteMarked func(io.Writer) error

	caches  *caches
	metered map[int64]*memtrace.Metrics // by region, of a trace
	types   map[memtrace.RegionType]subject
}

// errNoRegions occurs when a run has none of the tables.
var errNoRegions = errors.New("nothing is known of the run's memory")

// readSurvey reads a run directory.
func readSurvey(ctx context.Context, dir string) (*survey, error) {
	s := &survey{Dir: dir, RunID: filepath.Base(dir), From: "regions"}
	s.Title = s.RunID
	ofExperiment, err := memory.ReadMetadata(dir)
	if err == nil && ofExperiment.Validity.Class == memory.Contaminated {
		s.Warning = "contaminated, not to be published"
	}
	if m, err := rundir.ReadMetadata(dir); err == nil {
		s.RunID, s.ModelID, s.Title = m.RunID, m.Model.ID, titleOf(&m)
		s.Note = noteOf(&ofExperiment.Cell, s.Title, s.RunID)
		if text := m.TraceGivenBack(dir); text != "" {
			return nil, fmt.Errorf("%s: %s: what is left says nothing of a day or a token; 'llamatap memory' shows it",
				dir, text)
		}
		if m.Tokens != nil && m.Stopped.Missing() == "" { // accesses end where recording did
			s.Tokens = m.Tokens.Prompt + m.Tokens.Generated + m.Tokens.Setup
		}
		s.Resolution = graphSeconds(m.Phases)
	}
	var mapped, cached bool
	if s.Regions, mapped, err = readRegions(ctx, dir); err != nil {
		return nil, err
	}
	for i := range s.Regions {
		r := &s.Regions[i]
		s.extend(r.FirstRead, r.LastRead, r.FirstWrite, r.LastWrite)
	}
	if s.caches, cached, err = readCaches(ctx, dir); err != nil {
		return nil, err
	}
	if !mapped {
		return nil, fmt.Errorf("%s: %w: no %s in it: record the run with --tap-regions, or --tap-ledger, which has "+
			"it too", dir, errNoRegions, rundir.RegionsName)
	}
	if hasCache := func(r region) bool { return r.Type == memtrace.KVCache }; !cached &&
		slices.ContainsFunc(s.Regions, hasCache) {
		s.Notes = append(s.Notes, "without --tap-kv it is not known how long what is in the cache was needed")
	}
	s.extend(s.caches.Begin, s.caches.End)
	s.KV = s.caches.drawn(&s.span)
	s.totals()
	return s, nil
}

// titleOf names a run by its model, quantisation and context; by its id where the model is not known.
func titleOf(m *rundir.Metadata) string {
	name := cmp.Or(m.Model.Name, m.Model.ID)
	if name == "" {
		return m.RunID
	}
	if quantisation := m.Model.FileType; quantisation != "" && !strings.HasSuffix(name, quantisation) {
		name += ", " + quantisation
	}
	for _, c := range m.Contexts {
		if c.NCtx > 0 {
			return fmt.Sprintf("%s, context %d", name, c.NCtx)
		}
	}
	return name
}

// noteOf is what the title of a run leaves out: prompt and type of cache of a cell of an experiment, and the run's id.
func noteOf(c *memory.Cell, title, id string) string {
	var parts []string
	if c.Prompt != "" {
		parts = append(parts, "prompt "+c.Prompt)
	}
	if c.KVType != "" {
		parts = append(parts, "KV cache "+c.KVType)
	}
	if id != title {
		parts = append(parts, id)
	}
	return strings.Join(parts, ", ")
}

// graphSeconds is how long a graph of the run took on average.
func graphSeconds(phases map[string]rundir.PhaseUse) float64 {
	var sum rundir.PhaseUse
	for name, p := range phases {
		if name != "setup" {
			sum.Graphs, sum.NS = sum.Graphs+p.Graphs, sum.NS+p.NS
		}
	}
	if sum.Graphs == 0 {
		return 0
	}
	return float64(sum.NS) / float64(sum.Graphs) / 1e9
}

// span is the time of a run: Begin is when the first graph began, until when weights are loaded at the latest; End
// when something was accessed last. Unix nanoseconds.
type span struct{ Begin, End int64 }

// extend notes times at which something happened; 0 is none.
func (s *span) extend(times ...int64) {
	for _, ns := range times {
		if ns == 0 {
			continue
		}
		if s.Begin == 0 || ns < s.Begin {
			s.Begin = ns
		}
		s.End = max(s.End, ns)
	}
}

// seconds is how long the run was watched, from its first graph on.
func (s *span) seconds() float64 { return float64(s.End-s.Begin) / 1e9 }

// totals returns what was read and written in all, where no trace has phases.
func (s *survey) totals() {
	var sums [16]phaseBytes
	for i := range s.Regions {
		r := &s.Regions[i]
		b := &sums[r.Type]
		b.Read += float64(r.BytesRead)
		b.Written += float64(r.BytesWritten)
	}
	for kind, b := range sums {
		if b.Read+b.Written > 0 {
			b.Phase, b.Type = "all graphs", memtrace.RegionType(kind).String()
			s.Phases = append(s.Phases, b)
		}
	}
}

// subjects are the regions with what is known of how long their data was needed.
//
// A trace has for each byte when it was written and read. Without one, a weight is written by its load, which has
// ended when the first graph begins, and needed for as long as the model is: its life is censored. What loading
// writes is not counted, for it happens once.
func (s *survey) subjects() (subjects []subject) {
	for i := range s.Regions {
		r := &s.Regions[i]
		if r.Reads+r.Writes == 0 {
			continue
		}
		subject := subject{
			Type: r.Type, Name: r.Name, Region: r.ID, Bytes: r.Share, Seconds: s.seconds(), Resolution: s.Resolution,
			BytesRead: r.BytesRead, BytesWritten: r.BytesWritten,
		}
		switch m := s.metered[r.ID]; {
		case m != nil && m.Retention.Count > 0:
			subject.Lives, subject.Written, subject.WrittenOnce = &m.Retention, m.Written, m.WrittenOnce
		case r.Type == memtrace.Weight:
			if r.LastRead == 0 {
				continue
			}
			subject.Lives = &memtrace.Survival{}
			subject.Lives.Add(r.LastRead-s.Begin, int64(r.Bytes), true)
			subject.Written, subject.WrittenOnce = int64(r.Bytes), int64(r.Bytes)
		case r.Type == memtrace.KVCache:
			s.cached(&subject, r)
		}
		if m := s.metered[r.ID]; m != nil && s.From == "trace" { // the map counts cells that a mask hides too
			subject.BytesRead = m.BytesRead
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

// cached takes over what is known of a cache's cells.
func (s *survey) cached(subject *subject, r *region) {
	ctx := max(r.Ctx, 0)
	u := s.caches.uses[cachePart{ctx, r.Layer, r.Part}]
	if u == nil {
		return
	}
	subject.Lives = &u.lives
	subject.Written, subject.WrittenOnce = u.written*u.cellBytes, u.once*u.cellBytes
}

// livesByType are how long data was needed, by type of regions.
func livesByType(subjects []subject) (all []typeLives) {
	for _, group := range byType(subjects) {
		lives := &memtrace.Survival{}
		for i := range group {
			if group[i].Lives != nil {
				lives.Merge(group[i].Lives)
			}
		}
		if lives.Count > 0 {
			all = append(all, typeLives{Type: group[0].Type.String(), Survival: lives})
		}
	}
	return all
}

// drawn is everything that is drawn of the run.
func (s *survey) drawn(report *Report, subjects []subject) *figureData {
	s.Lives, s.Report, s.Subjects = livesByType(subjects), report, subjects
	return &s.figureData
}
