package analyze

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// ExportDataset copies runs into a dataset that is partitioned as Hive does it:
//
//	<to>/model_id=<model_id>/run_id=<run_id>/{*.parquet, metrics.csv, metadata.json, manifest.json}
//
// Each leaf has a manifest of its own, of the files that it holds, so that it is checked as the run is. A run that
// is there already, with the same files, is left alone. A leaf appears when it is whole. It returns how many were
// copied.
func ExportDataset(runs []SealedRun, to string) (copied int, err error) {
	for i := range runs {
		done, err := runs[i].export(to)
		if err != nil {
			return copied, fmt.Errorf("export %s: %w", runs[i].Dir, err)
		}
		if done {
			copied++
		}
	}
	return copied, nil
}

// wanted reports whether a file belongs into the dataset.
func wanted(name string) bool {
	return !strings.Contains(name, "/") && (strings.HasSuffix(name, ".parquet") || name == metricsName ||
		name == rundir.MetadataName)
}

// export copies one run.
func (r *SealedRun) export(to string) (done bool, err error) {
	if strings.ContainsAny(r.Cell.ModelID, `/\`) {
		return false, fmt.Errorf("the model id %.80q in %s has a slash and cannot name a folder: give runs that "+
			"'llamatap mrm run' made", r.Cell.ModelID, rundir.MetadataName)
	}
	leaf := filepath.Join(to, "model_id="+r.Cell.ModelID, "run_id="+filepath.Base(r.RunID))
	manifest := rundir.Manifest{RunID: r.RunID, Sealed: time.Now().UTC().Truncate(time.Second)}
	for _, f := range r.Files {
		if wanted(f.Name) {
			manifest.Files = append(manifest.Files, f)
		}
	}
	if old, err := rundir.ReadManifest(leaf); err == nil {
		if sameFiles(old.Files, manifest.Files) {
			return false, nil
		}
		return false, fmt.Errorf("%s is there already and holds another run: choose another folder", leaf)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	draft, err := rundir.NewDraft(leaf)
	if err != nil {
		return false, err
	}
	defer draft.Discard()
	for _, f := range manifest.Files {
		if err := copyTo(draft.Path(f.Name), filepath.Join(r.Dir, f.Name)); err != nil {
			return false, err
		}
	}
	text, err := manifest.Encode()
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(draft.Path(rundir.ManifestName), text, 0o600); err != nil {
		return false, err
	}
	if report, err := rundir.Verify(draft.Dir); err != nil || len(report.Changed)+len(report.Missing) > 0 {
		return false, errors.Join(err, fmt.Errorf("what was copied is not what was recorded: %v",
			append(report.Changed, report.Missing...)))
	}
	return true, draft.Publish(false)
}

// sameFiles reports whether two manifests list files of the same names and sums.
func sameFiles(a, b []rundir.File) bool {
	sums := func(files []rundir.File) map[string]string {
		all := map[string]string{}
		for _, f := range files {
			all[f.Name] = f.SHA256
		}
		return all
	}
	return maps.Equal(sums(a), sums(b))
}

// copyTo copies a file.
func copyTo(to, from string) error {
	in, err := rundir.OpenFile(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
