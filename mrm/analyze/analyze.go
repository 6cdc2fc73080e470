package analyze

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// Options say what is computed, and how. The zero value has the defaults.
type Options struct {
	Devices    string   // file of further device classes
	Classes    []string // ids of those that are asked for; none: all
	Years      float64  // that cells must live; 0: 5
	Thresholds memtrace.Thresholds
	Windows    []time.Duration // of working sets; none: the defaults
	Forms      []string        // of figures; none: no figures
	// Contaminated computes a run too that mrm-trace's rules leave out.
	Contaminated bool
	Version      string   // of the program, and its command: for derived.json
	Command      []string //
	// Progress, where it is set, is called with the accesses that were read, of all.
	Progress func(done, total int64)
}

// Result is what was written.
type Result struct {
	Dir    string // of the run
	Out    string // the folder below derived
	Files  []string
	Report *Report // nil: from samples of mrm-trace, of which nothing is known in bytes
	From   string  // what it was computed from: trace, regions or samples
	Notes  []string
}

// ErrContaminated occurs when a run is left out because it is contaminated.
var ErrContaminated = errors.New("the run is contaminated")

// folder is where results of a run stand, below its directory.
var folder = filepath.Join("derived", "mrm")

// product is a file of the results.
type product struct {
	name string
	fill func(io.Writer) error // nil: there is none
}

// Run analyses one run directory.
func Run(ctx context.Context, dir string, o Options) (*Result, error) {
	if err := check(dir, o); err != nil {
		return nil, err
	}
	r := &Result{Dir: dir, Out: filepath.Join(dir, folder)}
	var products []product
	var drawn *figureData
	isForeign, err := memory.Foreign(dir)
	switch {
	case err != nil:
		return nil, err
	case isForeign: // mrm-trace's samples have no sizes, so that nothing can be said of bytes
		report, err := memory.Analyze(ctx, dir, memory.Options{Windows: o.Windows, Thresholds: o.Thresholds,
			Progress: o.Progress})
		if err != nil {
			return nil, err
		}
		r.From, r.Notes, products = "samples", report.Notes, []product{{metricsName, report.WriteMetrics}}
	default:
		if products, drawn, err = r.survey(ctx, o); err != nil {
			return nil, err
		}
	}
	d, err := rundir.NewDraft(r.Out)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w: make room there, or analyze a copy of the run elsewhere", r.Out, err)
	}
	defer d.Discard()
	for _, f := range products {
		if f.fill == nil {
			continue
		}
		if err := rundir.WriteFile(d.Path(f.name), 0o600, f.fill); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
		r.Files = append(r.Files, f.name)
	}
	if drawn != nil && len(o.Forms) > 0 {
		paths, err := drawFigures(drawn, d.Dir, o.Forms)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			r.Files = append(r.Files, filepath.Base(path))
		}
	}
	if err := d.Publish(true); err != nil {
		return nil, fmt.Errorf("write %s: %w", r.Out, err)
	}
	return r, export.Remember(dir, r.Out, o.Version, o.Command)
}

// survey computes what follows from the run's tables: files, and what figures draw.
func (r *Result) survey(ctx context.Context, o Options) ([]product, *figureData, error) {
	classes, err := LoadClasses(o.Devices)
	if err != nil {
		return nil, nil, err
	}
	some, err := classes.Pick(o.Classes)
	if err != nil {
		return nil, nil, err
	}
	s, err := readSurvey(ctx, r.Dir)
	if err != nil {
		return nil, nil, err
	}
	metrics, err := s.measure(ctx, memory.Options{Windows: o.Windows, Thresholds: o.Thresholds, Progress: o.Progress})
	if err != nil {
		return nil, nil, err
	}
	subjects := s.subjects()
	r.Report = whatIf(subjects, classes, some,
		demandOptions{Years: o.Years, Tokens: s.Tokens, Thresholds: o.Thresholds, Types: s.types})
	r.From, r.Notes = s.From, s.Notes
	return []product{
		{metricsName, metrics}, {"suitability.csv", r.Report.writeLabelsCSV}, {"whatif.csv", r.Report.WriteCSV},
		{"sensitivity.csv", r.Report.writeSensitivityCSV}, {"whatif.json", r.Report.WriteJSON},
		{"whatif.txt", r.Report.WriteText}, {"phases.csv", s.WriteMarked},
	}, s.drawn(r.Report, subjects), nil
}

// check looks at whether a run may be analysed: sealed, and not contaminated.
func check(dir string, o Options) error {
	switch sealed, err := rundir.Sealed(dir); {
	case err != nil:
		return fmt.Errorf("%s is not a sealed run: %w: see 'llamatap verify %s'", dir, err, dir)
	case !sealed:
		return fmt.Errorf("%s has no manifest: it is not a sealed run; 'llamatap verify --repair %s' seals one that "+
			"was interrupted", dir, dir)
	}
	m, err := memory.ReadMetadata(dir)
	switch {
	case errors.Is(err, memory.ErrNoExperiment):
		return nil // recorded with llamatap run
	case err != nil:
		return err
	case m.Validity.Class == memory.Contaminated && !o.Contaminated:
		return fmt.Errorf("%s: %w (%s): --contaminated analyses it all the same", dir, ErrContaminated,
			m.Validity.Why())
	}
	return nil
}
