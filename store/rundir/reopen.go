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
	d := &Dir{path: filepath.Clean(path), again: true}
	if err := d.reopen(); err != nil {
		return nil, fmt.Errorf("reopen %s: %w", path, err)
	}
	return d, nil
}

func (d *Dir) reopen() error {
	if err := d.take(); err != nil {
		return err
	}
	if err := Resumable(d.path); err != nil { // under the lock: nobody seals it meanwhile
		d.Release()
		return err
	}
	d.id = knownID(d.path)
	if err := os.Remove(filepath.Join(d.path, ManifestName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := syncDir(d.path); err != nil {
		return err
	}
	return d.RemoveLeftovers()
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
