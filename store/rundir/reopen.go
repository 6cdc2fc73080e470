package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrInUse occurs when another process writes a run.
var ErrInUse = errors.New("is being recorded by another process")

// Reopen opens an interrupted run to record the rest of it. Its manifest, if it has one, is removed first, then
// what a killed process has left; recorded files stay, metadata and tokens until they are replaced. A run that
// [Resumable] refuses is not touched.
func Reopen(path string) (*Dir, error) {
	d, err := takeOver(path)
	if err != nil {
		return nil, fmt.Errorf("reopen %s: %w", path, err)
	}
	err = Resumable(d.Path()) // under the lock, so that no process seals it meanwhile
	if err == nil {
		if err = os.Remove(filepath.Join(d.Path(), ManifestName)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = Sync(d.Path())
	}
	if err == nil {
		err = RemoveLeftovers(d.Path())
	}
	if err != nil {
		d.Release()
		return nil, fmt.Errorf("reopen %s: %w", path, err)
	}
	return d, nil
}

// Mend opens an existing directory, sealed or not, to seal it again with everything that is in it. Before a caller
// changes a file of it, it backs the manifest up. A run that is still being written is ErrInUse.
func Mend(path string) (*Dir, error) {
	d, err := takeOver(path)
	if err != nil {
		return nil, fmt.Errorf("open run directory %s: %w", path, err)
	}
	return d, nil
}

// takeOver locks an existing directory.
func takeOver(path string) (*Dir, error) {
	path = filepath.Clean(path)
	file, err := Lock(path)
	if err != nil {
		return nil, err
	}
	return &Dir{id: knownID(path), lock: file, contents: contents{path: path, reopened: true}}, nil
}

// knownID is the id of an existing run, whatever its folder is called now: its metadata's, or else its manifest's.
func knownID(path string) string {
	if m, err := ReadMetadata(path); err == nil && m.RunID != "" {
		return m.RunID
	}
	if m, err := ReadManifest(path); err == nil && m.RunID != "" {
		return m.RunID
	}
	if full, err := filepath.Abs(path); err == nil && segmentForm.MatchString(filepath.Base(full)) {
		return filepath.Base(filepath.Dir(full)) + "/" + filepath.Base(full)
	}
	return ""
}

// Resumable returns nil for a run directory that [Reopen] may open: one without a manifest, or one that the
// collector sealed because the program was interrupted or recording stopped. Any other sealed run is a finished
// result: the error is ErrSealed.
func Resumable(path string) error {
	_, err := os.Lstat(filepath.Join(path, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	m, err := ReadMetadata(path)
	switch {
	case err != nil:
		return fmt.Errorf("%w, and whether it was interrupted is unknown: %w", ErrSealed, err)
	case len(m.Repaired) > 0 || m.SealedBy != "collector":
		return fmt.Errorf("%w by a repair, which ends a run: start a new one", ErrSealed)
	case m.Stopped == nil && m.Exit != nil && m.Exit.Status == 0 && m.Exit.Signal == "":
		return fmt.Errorf("%w: its program has ended by itself, and nothing is left to record", ErrSealed)
	}
	return nil
}
