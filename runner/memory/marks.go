package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

// quietShare is the share of a run at whose end no page of a model's file was touched for the first time, from
// which on its loading is taken to have ended.
const quietShare = 0.25

// phases are the phases of a run: from markers or, where nobody set one, inferred when the run is sealed.
type phases struct {
	marks   []memtrace.Mark
	moments []sample.Moment // of rows from each marker on
	file    io.WriteCloser  // nil: no marker was set
	begin   int64           // of the recording, in the time of its rows; 0: not known yet
	end     int64
	loaded  int64  // the newest page fault in a model's file
	faults  uint64 // how many there were
}

// set writes a marker down. Its time is not before that of the marker before it.
func (p *phases) set(create func(name string) (io.WriteCloser, error), m memtrace.Mark) error {
	if len(p.marks) == memtrace.MaxMarks {
		return fmt.Errorf("the recording has %d markers, which is all that it takes", memtrace.MaxMarks)
	}
	line, err := json.Marshal(m)
	if err == nil && p.file == nil {
		p.file, err = create(rundir.MarksName)
	}
	if err == nil {
		_, err = p.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", rundir.MarksName, err)
	}
	moment := sample.NoMoment
	if phase, err := memtrace.ParsePhase(m.Phase); err == nil {
		moment.Phase, moment.Known = phase, true
	}
	if step, err := label.ParsePhase(m.Step); err == nil {
		moment.Step = step
	}
	p.marks, p.moments = append(p.marks, m), append(p.moments, moment)
	return nil
}

// apply sets the phase of a row that happened at a time, and follows page faults in files of models.
func (p *phases) apply(row *sample.Row, ns int64) {
	if p.begin == 0 || ns < p.begin {
		p.begin = ns
	}
	p.end = max(p.end, ns)
	if row.Collector == memtrace.CollectorFault && row.Hit.Region != nil && row.Hit.Region.Type == memtrace.Weight {
		p.faults++
		p.loaded = max(p.loaded, ns)
	}
	if at := memtrace.MarkAt(p.marks, ns); at >= 0 {
		row.Moment = p.moments[at]
	}
}

// infer takes loading to have ended with the last page fault in a model's file, where none came in the last quarter
// of the run and nobody set a marker.
func (p *phases) infer() []memtrace.Mark {
	if len(p.marks) > 0 || p.faults == 0 || float64(p.end-p.loaded) < quietShare*float64(p.end-p.begin) {
		return nil
	}
	loading, _ := memtrace.NewMark("loading")
	after, _ := memtrace.NewMark(memtrace.Generation.String())
	loading.TimeNS, loading.Inferred = p.begin, true
	after.TimeNS, after.Inferred = p.loaded+1, true
	return []memtrace.Mark{loading, after}
}

// phasesUse is what metadata.json has on markers.
type phasesUse struct {
	File     string `json:"file"`
	Version  int    `json:"version"`
	Markers  int    `json:"markers"`
	Inferred bool   `json:"inferred"` // nobody set them
	Begin    int64  `json:"begin_ns"` // of the recording, in the time of trace.parquet
	End      int64  `json:"end_ns"`
	// Faults are those in files of models that the end of loading was inferred from; Rule says how.
	Faults uint64 `json:"faults,omitempty"`
	Rule   string `json:"rule,omitempty"`
}

// finish completes the file of markers, with those that are inferred. nil: there are none.
func (p *phases) finish(create func(name string) (io.WriteCloser, error)) (use *phasesUse, err error) {
	inferred := p.infer()
	for _, m := range inferred {
		err = errors.Join(err, p.set(create, m))
	}
	if p.file == nil {
		return nil, err
	}
	use = &phasesUse{File: rundir.MarksName, Version: 1, Markers: len(p.marks), Inferred: inferred != nil,
		Begin: p.begin, End: p.end}
	if use.Inferred {
		use.Faults = p.faults
		use.Rule = fmt.Sprintf("loading ends with the last page fault in a mapped model file: none came in the last "+
			"%.0f %% of the run, or more", 100*quietShare)
	}
	return use, errors.Join(err, p.file.Close())
}
