package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	Model   string `json:"model,omitempty"`
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
		p.Model = m.Model.ID
		if p.Model == "" {
			p.Model = m.Model.Name
		}
	}
	return p
}

func sourceOf(run *tensors.Run) Source {
	s := Source{Assumed: run.Stream.Assumed()}
	if run.Metadata != nil {
		s.RunID = run.Metadata.RunID
	}
	if run.Kind != tensors.KindRun {
		return s
	}
	if data, err := os.ReadFile(filepath.Join(run.Path, rundir.ManifestName)); err == nil {
		sum := sha256.Sum256(data)
		s.Manifest = hex.EncodeToString(sum[:])
	}
	return s
}

// DerivedName is the file of a run directory that says what was made of the run later.
const DerivedName = "derived.json"

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

// remember tells of the export in the run's derived.json.
func (e *exporter) remember() error {
	name := filepath.Join(e.run.Path, DerivedName)
	derived := Derived{Version: 1}
	data, err := os.ReadFile(name)
	if err == nil {
		if err = json.Unmarshal(data, &derived); err != nil {
			return fmt.Errorf("%s is damaged (%w): move it away; the export itself is done", name, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path, err := filepath.Rel(e.run.Path, e.result.Path)
	if err != nil {
		return err
	}
	path = filepath.ToSlash(path)
	derived.Files = slices.DeleteFunc(derived.Files, func(p DerivedProduct) bool { return p.Path == path })
	derived.Files = append(derived.Files, DerivedProduct{Path: path, Made: time.Now().UTC().Truncate(time.Second),
		Llamatap: e.o.Version, Command: e.o.Command, Source: sourceOf(e.run)})
	if data, err = json.MarshalIndent(derived, "", "  "); err != nil {
		return err
	}
	d, err := newDraft(name, true)
	if err != nil {
		return err
	}
	defer d.discard()
	if err := os.WriteFile(d.path(DerivedName), append(data, '\n'), 0o600); err != nil {
		return err
	}
	return d.publishFiles(DerivedName)
}
