package rundir

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

var runForm = regexp.MustCompile(`^run_[0-9A-Za-z_.-]{1,100}$`)

// isRun reports whether a directory is a run's, by its name or, of a copy with another name, by its files.
func isRun(path string) bool {
	if runForm.MatchString(filepath.Base(path)) {
		return true
	}
	for _, name := range []string{ManifestName, MetadataName} {
		if info, err := os.Lstat(filepath.Join(path, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// Find returns the paths of the run directories in a folder and in the folders in it, newest first: names begin with the time.
func Find(folder string) []string {
	var found []string
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		switch path := filepath.Join(folder, e.Name()); {
		case !e.IsDir():
		case isRun(path):
			found = append(found, path)
		default:
			below, _ := os.ReadDir(path)
			for _, b := range below {
				if b.IsDir() && isRun(filepath.Join(path, b.Name())) {
					found = append(found, filepath.Join(path, b.Name()))
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Or(cmp.Compare(filepath.Base(b), filepath.Base(a)), cmp.Compare(a, b))
	})
	return found
}
