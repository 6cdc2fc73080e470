package analyze

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// metricsName is the file of a run's metrics.
const metricsName = "metrics.csv"

// SealedRun is a run that was found.
type SealedRun struct {
	Dir string
	memory.Metadata
	Files []rundir.File // that its manifest lists
}

// errDamaged occurs when a file of a run is not what was recorded.
var errDamaged = errors.New("is not what was recorded")

// errNoRuns occurs when there is no run to aggregate.
var errNoRuns = errors.New("no run of an experiment")

// Found is what was found below folders.
type Found struct {
	isAll        bool        // contaminated runs are taken too
	Runs         []SealedRun // by id
	Contaminated []SealedRun // left out
	Others       int         // sealed runs that belong to no experiment
	Unsealed     int         // run directories without a manifest
}

// Find finds sealed runs below folders, in results/<model_id>/<run_id>/ as in model_id=…/run_id=…/, and checks
// them: a file that is not what was recorded is ErrDamaged, a table of a foreign version [table.ErrVersion]; both
// name the file. Contaminated runs are left out, and not checked; all takes them as if they were not.
func Find(roots []string, all bool) (*Found, error) {
	f, seen := &Found{isAll: all}, map[string]bool{}
	for _, root := range roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s: there is no such folder: give one that holds results, such as output.dir of "+
				"the configuration", root)
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !d.IsDir():
				return nil
			case path != root && (d.Name() == "derived" || strings.HasPrefix(d.Name(), ".")):
				return fs.SkipDir
			}
			isRun, err := f.addIfRun(path, seen)
			if err == nil && isRun {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, runs := range [][]SealedRun{f.Runs, f.Contaminated} {
		slices.SortFunc(runs, func(a, b SealedRun) int {
			return cmp.Or(strings.Compare(a.RunID, b.RunID), strings.Compare(a.Dir, b.Dir))
		})
	}
	return f, nil
}

// addIfRun adds a folder if it is a run.
func (f *Found) addIfRun(dir string, seen map[string]bool) (isRun bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, rundir.MetadataName)); err != nil {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.ManifestName)); err != nil {
		f.Unsealed++
		return true, nil
	}
	if full, err := filepath.EvalSymlinks(dir); err == nil {
		if seen[full] {
			return true, nil
		}
		seen[full] = true
	}
	run := SealedRun{Dir: dir}
	if run.Metadata, err = memory.ReadMetadata(dir); errors.Is(err, memory.ErrNoExperiment) {
		f.Others++
		return true, nil
	} else if err != nil {
		return true, err
	}
	if run.Validity.Class == memory.Contaminated && !f.isAll {
		f.Contaminated = append(f.Contaminated, run)
		return true, nil
	}
	if err := run.check(); err != nil {
		return true, err
	}
	f.Runs = append(f.Runs, run)
	return true, nil
}

// check compares a run with its manifest, and looks at the version of each table.
func (r *SealedRun) check() error {
	report, err := rundir.Verify(r.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Dir, err)
	}
	for _, name := range append(report.Changed, report.Missing...) {
		return fmt.Errorf("%s: %w: move the run away, or say what happened with 'llamatap verify %s'",
			filepath.Join(r.Dir, name), errDamaged, r.Dir)
	}
	manifest, err := rundir.ReadManifest(r.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Dir, err)
	}
	r.Files = manifest.Files
	for _, f := range r.Files {
		if strings.HasSuffix(f.Name, ".parquet") {
			if err := table.Check(filepath.Join(r.Dir, f.Name), table.Form{Name: f.Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// has reports whether a run has a file.
func (r *SealedRun) has(name string) bool {
	return slices.ContainsFunc(r.Files, func(f rundir.File) bool { return f.Name == name })
}
