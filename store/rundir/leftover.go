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

// Present returns the path of a file of a run directory that is finished, or else still written; false for none.
func Present(dir, name string) (path string, ok bool) {
	for _, form := range []string{name, partName(name)} {
		path = filepath.Join(dir, form)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}

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

// Leftovers lists what a killed process has left in a run directory: unfinished files under temporary names, scratch
// files, its socket.
func Leftovers(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if leftover(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// RemoveLeftovers removes them. No file of [Dir.Create] may be open.
func RemoveLeftovers(dir string) error {
	names, err := Leftovers(dir)
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	if err != nil || len(names) == 0 {
		return err
	}
	return Sync(dir)
}

// RemoveCheckpoint removes the checkpoint and the states of the run in a directory that will not be resumed, and
// reports whether
// there were any.
func RemoveCheckpoint(dir string) (removed bool, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), CheckpointSuffix) || e.Name() == StateFolder {
			removed = true
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil || !removed {
		return removed, err
	}
	return true, Sync(dir)
}

// Scratch makes a file without a name in a directory: it vanishes with this process.
func Scratch(dir string) (*os.File, error) {
	if file, err := nameless(dir); err == nil {
		return file, nil
	}
	file, err := os.CreateTemp(dir, ".scratch-*") // a file system that has none
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
