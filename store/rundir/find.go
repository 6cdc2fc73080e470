package rundir

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

var runForm = regexp.MustCompile(`^run_[0-9A-Za-z_.-]{1,100}$`)

// Find returns the paths of the run directories in a folder and in the folders in it, newest first: names begin with the time.
func Find(folder string) []string {
	var found []string
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		switch path := filepath.Join(folder, e.Name()); {
		case !e.IsDir():
		case runForm.MatchString(e.Name()):
			found = append(found, path)
		default:
			below, _ := os.ReadDir(path)
			for _, b := range below {
				if b.IsDir() && runForm.MatchString(b.Name()) {
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
