package rundir

import (
	"errors"
	"io"
	"time"
)

// ManifestName is the file that makes a directory a result.
const ManifestName = "manifest.json"

// Dir is a run directory that is being written. Its methods may be called from several goroutines.
type Dir struct{}

// Create makes <out>/<model_id>/run_YYYYMMDD_HHMMSS_xxxx.
func Create(out, modelID string, now time.Time) (*Dir, error) { return nil, errors.ErrUnsupported }

// Path returns the directory's path.
func (d *Dir) Path() string { return "" }

// ID returns the directory's name, the run's id.
func (d *Dir) ID() string { return "" }

// Create opens a file of the run for writing; it is hashed while it is written and appears under its name by Close.
func (d *Dir) Create(name string) (io.WriteCloser, error) { return nil, errors.ErrUnsupported }

// AddSum records a file that was hashed elsewhere.
func (d *Dir) AddSum(name string, size int64, sha256 [32]byte) {}

// WriteJSON writes v to a file of the run.
func (d *Dir) WriteJSON(name string, v any) error { return errors.ErrUnsupported }

// Seal writes the manifest, last.
func (d *Dir) Seal() error { return errors.ErrUnsupported }

// Report is what Verify found.
type Report struct {
	Sealed  bool     // a manifest is there
	Files   int      // recorded and as recorded
	Missing []string // recorded, not there
	Changed []string // other size or hash
	Extra   []string // there, not recorded
}

// Verify compares a run directory with its manifest. derived/ is left out.
func Verify(path string) (Report, error) { return Report{}, errors.ErrUnsupported }

// ModelID makes a path-safe model id.
func ModelID(name, fileType string) string { return "" }
