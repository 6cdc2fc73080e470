package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Resized names the files of a sealed run, those of its segments included, that are missing or have another size than
// the manifest says: of a copy that was cut short, say. It compares no content, as Verify does, and what was moved to
// object storage is not missing. Of a run without a manifest there are none; a damaged one is named.
func Resized(dir string) (found []string) {
	var moved *Moved
	if m, err := ReadMetadata(dir); err == nil {
		moved = m.Moved
	}
	return resized(dir, "", moved)
}

func resized(dir, segment string, moved *Moved) (found []string) {
	m, err := ReadManifest(filepath.Join(dir, segment))
	if path := new(fs.PathError); errors.As(err, &path) { // it is not there, or it may not be read
		return nil
	} else if err != nil {
		return []string{strings.TrimPrefix(err.Error(), "read ")}
	}
	for _, f := range m.Files {
		name := path.Join(segment, f.Name)
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case err != nil && moved != nil && moved.Has(name):
		case err != nil:
			if folder, ok := strings.CutSuffix(name, "/"+ManifestName); ok {
				if _, err := os.Stat(filepath.Join(dir, folder)); err != nil {
					name = folder // a whole segment
				}
			}
			found = append(found, name+" is missing")
		case info.Size() != f.Size:
			found = append(found, fmt.Sprintf("%s has %d bytes, the run had %d", name, info.Size(), f.Size))
		}
		if below, ok := strings.CutSuffix(name, "/"+ManifestName); ok && segment == "" && err == nil {
			found = append(found, resized(dir, below, moved)...)
		}
	}
	return found
}
