package mrm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// rawFolder holds what was really collected.
const rawFolder = "raw"

// RunExporter makes run directories of mrm-trace's form (C-04) out of recorded ones.
type RunExporter struct {
	// Dir is the folder of results. Runs that are contaminated go to contaminated/ below it.
	Dir string
	// Work is a folder of the same file system for what is not finished; "" is Dir/.mrm/export.
	Work string
}

// Export is what a run directory is made of.
type Export struct {
	// From is a directory that a recorder has sealed. Its files are moved out of it, behind everything else.
	From string
	// Metadata is what metadata.json holds; RunID and SchemaVersion are filled in.
	Metadata *memory.Metadata
	// Metrics writes metrics.csv; nil: there is none.
	Metrics func(io.Writer) error
	// Raw are the files of what was collected, by name. That of [allocationsName] is made of the table of
	// regions, where that has buffers of ggml's.
	Raw map[string]func(io.Writer) error
}

// Export puts a run together and gives it its place among the results when it is sealed, in one step. It returns
// its directory.
func (x RunExporter) Export(e Export) (string, error) {
	work := x.Work
	if work == "" {
		work = filepath.Join(x.Dir, workFolder, "export")
	}
	manifest, err := rundir.ReadManifest(e.From)
	if err != nil {
		return "", fmt.Errorf("%s is not a sealed run: %w", e.From, err)
	}
	dir, err := rundir.Create(work, e.Metadata.Cell.ModelID, time.Now())
	if err != nil {
		return "", err
	}
	e.Metadata.RunID, e.Metadata.SchemaVersion = dir.ID(), table.Version
	if err := e.fill(dir, manifest); err != nil {
		return "", err
	}
	if err := dir.WriteJSON(rundir.MetadataName, e.Metadata); err != nil {
		return "", err
	}
	if err := dir.Seal(); err != nil {
		return "", err
	}
	return x.moveSealed(dir.Path(), e.Metadata.Validity.Class)
}

// fill writes what is made of what was recorded, and then moves that into the run.
func (e *Export) fill(dir *rundir.Dir, manifest rundir.Manifest) error {
	if e.Metrics != nil {
		file, err := dir.Create(metricsName)
		if err != nil {
			return err
		}
		if err := errors.Join(e.Metrics(file), file.Close()); err != nil {
			return err
		}
	}
	if err := e.raw(dir); err != nil {
		return err
	}
	for _, f := range manifest.Files {
		if f.Name == rundir.MetadataName {
			continue
		}
		sum, err := hex.DecodeString(f.SHA256)
		if err != nil || len(sum) != sha256.Size || filepath.Base(f.Name) != f.Name {
			return fmt.Errorf("the manifest of %s has %q, which cannot be part of a run of an experiment", e.From,
				f.Name)
		}
		if err := os.Rename(filepath.Join(e.From, f.Name), filepath.Join(dir.Path(), f.Name)); err != nil {
			return err
		}
		dir.AddSum(f.Name, f.Size, [sha256.Size]byte(sum))
	}
	return nil
}

// raw writes what was collected.
func (e *Export) raw(dir *rundir.Dir) error {
	if err := os.Mkdir(filepath.Join(dir.Path(), rawFolder), 0o700); err != nil {
		return err
	}
	files := maps.Clone(e.Raw)
	buffers, err := allocations(e.From)
	if err != nil {
		return err
	}
	if delete(files, allocationsName); len(buffers) > 0 {
		files[allocationsName] = func(out io.Writer) error {
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			for _, buffer := range buffers {
				if err := lines.Encode(buffer); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addRaw(dir, name, files[name]); err != nil {
			return err
		}
	}
	return rundir.Sync(filepath.Join(dir.Path(), rawFolder))
}

// addRaw writes a file of what was collected, and records it.
func addRaw(dir *rundir.Dir, name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(filepath.Join(dir.Path(), rawFolder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = write(io.MultiWriter(file, sum))
	if err == nil {
		err = file.Sync()
	}
	info, failed := file.Stat()
	if err = errors.Join(err, failed, file.Close()); err != nil {
		return fmt.Errorf("write %s/%s: %w", rawFolder, name, err)
	}
	dir.AddSum(rawFolder+"/"+name, info.Size(), [sha256.Size]byte(sum.Sum(nil)))
	return nil
}

// moveSealed moves a sealed run to where it belongs: beside the others of its model, or into the archive. A directory
// that holds something is never replaced.
func (x RunExporter) moveSealed(dir string, class memory.Class) (string, error) {
	parent := x.Dir
	if class == memory.Contaminated {
		parent = filepath.Join(parent, archiveFolder)
	}
	parent = filepath.Join(parent, filepath.Base(filepath.Dir(dir)))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of results: %w", err)
	}
	to := filepath.Join(parent, filepath.Base(dir))
	if err := os.Rename(dir, to); err != nil {
		return "", fmt.Errorf("move the sealed run to %s: %w", to, err)
	}
	return to, rundir.Sync(parent)
}

// copyFile is what writes a file of another one's bytes.
func copyFile(path string) func(io.Writer) error {
	return func(out io.Writer) error {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(out, in)
		return err
	}
}
