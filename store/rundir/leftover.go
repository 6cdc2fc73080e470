package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// partSuffix ends the temporary name, which begins with a dot, of a file or folder that does not have its name yet,
// or not any more.
const partSuffix = ".part"

// partName is the temporary name of a file.
func partName(name string) string { return "." + name + partSuffix }

// leftover reports whether a name in a run directory is one that only a process uses that writes the run. Numbers
// at the end of a name are of earlier versions.
func leftover(name string) bool {
	hidden, ok := strings.CutPrefix(name, ".")
	switch {
	case name == SocketName:
		return true
	case !ok:
		return false
	}
	return strings.HasSuffix(hidden, partSuffix) || strings.HasPrefix(hidden, "reserve-") ||
		strings.HasPrefix(hidden, "tokens-") ||
		strings.HasPrefix(hidden, "scratch-") || strings.Contains(hidden, CheckpointSuffix+"-")
}

// Abandoned reports whether a folder has a run's name and holds nothing, or nothing but what a killed process has
// left: its process was killed before the run had metadata.
func Abandoned(path string) bool {
	full, err := filepath.Abs(path)
	if err != nil || !runForm.MatchString(filepath.Base(full)) {
		return false
	}
	entries, err := os.ReadDir(path)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !leftover(e.Name()) })
}

// Leftovers lists what a killed process has left in the directory: unfinished files under temporary names, scratch
// files, its socket.
func (d *Dir) Leftovers() (names []string, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		if leftover(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// RemoveLeftovers removes them. No file of Create may be open.
func (d *Dir) RemoveLeftovers() error {
	names, err := d.Leftovers()
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.path, name)))
	}
	if err != nil || len(names) == 0 {
		return err
	}
	return syncDir(d.path)
}

// RemoveCheckpoint removes the checkpoint and the states of a run that will not be resumed, and reports whether
// there were any.
func (d *Dir) RemoveCheckpoint() (removed bool, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), CheckpointSuffix) || e.Name() == StateFolder {
			removed = true
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.path, e.Name())))
		}
	}
	if err != nil || !removed {
		return removed, err
	}
	return true, syncDir(d.path)
}

// Release gives up a directory without sealing it.
func (d *Dir) Release() { d.lock.Close() }

// Scratch makes a file without a name in the directory: it vanishes with this process.
func (d *Dir) Scratch() (*os.File, error) {
	if file, err := nameless(d.path); err == nil {
		return file, nil
	}
	file, err := os.CreateTemp(d.path, ".scratch-*") // a file system that has none
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
