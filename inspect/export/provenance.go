package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/rundir"
)

// Provenance says in an export where it comes from. Nothing in it depends on when and where the export was made.
type Provenance struct {
	Version int    `json:"version"` // of the layout of the export
	Form    Form   `json:"form"`
	Source  Source `json:"source"`
	Model   string `json:"model,omitempty"` // its name, as in the run's metadata.json
}

// Source is the capture that something was derived from.
type Source struct {
	RunID string `json:"run_id,omitempty"`
	// Manifest is the SHA-256 of its manifest.json; absent for a run that is not sealed.
	Manifest string `json:"manifest_sha256,omitempty"`
	Assumed  string `json:"assumed,omitempty"` // of a stream without index
}

// provenance is that of this export.
func (e *exporter) provenance() Provenance {
	p := Provenance{Version: 1, Form: e.o.Form, Source: sourceOf(e.run)}
	if m := e.run.Metadata; m != nil {
		p.Model = cmp.Or(m.Model.Name, m.Model.ID)
	}
	return p
}

func sourceOf(run *tensors.Run) Source {
	s := Source{Assumed: run.Stream.Info().Assumed}
	if run.Metadata != nil {
		s.RunID = run.Metadata.RunID
	}
	if run.Kind == tensors.KindRun {
		s.Manifest = manifestSum(run.Path)
	}
	return s
}

// manifestSum is the SHA-256 of a run directory's manifest; "" where it has none.
func manifestSum(dir string) string {
	data, err := rundir.ReadFile(filepath.Join(dir, rundir.ManifestName), rundir.MaxDocument)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Derived is derived.json.
type Derived struct {
	Version int              `json:"version"`
	Files   []DerivedProduct `json:"files"`
}

// DerivedProduct is a file or folder that was made of a run.
type DerivedProduct struct {
	Path     string    `json:"path"` // in the run directory
	Made     time.Time `json:"made"`
	Llamatap string    `json:"llamatap,omitempty"` // version of the program
	Command  []string  `json:"command,omitempty"`
	Source   Source    `json:"source"`
}

// remember records the export in the run's derived.json.
func (e *exporter) remember() error {
	return remember(e.run.Path, e.result.Path, DerivedProduct{Llamatap: e.o.Version, Command: e.o.Command,
		Source: sourceOf(e.run)})
}

// Remember records in a run's derived.json a file or folder that was made from it: when, by which version and
// command, of which manifest.
func Remember(dir, path, version string, command []string) error {
	source := Source{Manifest: manifestSum(dir)}
	if m, err := rundir.ReadMetadata(dir); err == nil {
		source.RunID = m.RunID
	}
	return remember(dir, path, DerivedProduct{Llamatap: version, Command: command, Source: source})
}

func remember(dir, path string, p DerivedProduct) error {
	name := filepath.Join(dir, rundir.DerivedName)
	derived := Derived{Version: 1}
	data, err := rundir.ReadFile(name, rundir.MaxDocument)
	if err == nil {
		if err = json.Unmarshal(data, &derived); err != nil {
			return fmt.Errorf("%s is damaged (%w): move it away; %s itself is done", name, err, path)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if path, err = filepath.Rel(dir, path); err != nil {
		return err
	}
	p.Path, p.Made = filepath.ToSlash(path), time.Now().UTC().Truncate(time.Second)
	derived.Files = append(slices.DeleteFunc(derived.Files, func(old DerivedProduct) bool {
		return old.Path == p.Path
	}), p)
	if data, err = json.MarshalIndent(derived, "", "  "); err != nil {
		return err
	}
	return rundir.WriteFile(name, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
