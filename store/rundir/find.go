package rundir

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

var runForm = regexp.MustCompile(`^run_[0-9A-Za-z_.-]{1,100}$`)

// IsRunName reports whether a folder of that name is a run directory.
func IsRunName(name string) bool { return runForm.MatchString(name) }

// isRun reports whether a directory is a run's, by its name or, of a copy with another name, by its files: other
// programs have files of these names, too.
func isRun(path string) bool {
	return IsRunName(filepath.Base(path)) || namesRun(filepath.Join(path, ManifestName)) ||
		namesRun(filepath.Join(path, MetadataName))
}

// namesRun reports whether a regular file begins as a manifest or metadata of a run does.
func namesRun(path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 1024)
	n, _ := io.ReadFull(file, head)
	return bytes.Contains(head[:n], []byte(`"run_id"`))
}

// Folder is the name of the folder that runs are recorded in unless another one is given.
const Folder = "llamatap-runs"

// Find returns the paths of the run directories in a folder, in the folders in it, and in its [Folder], newest first.
// Names begin with the second in which a run began; of one second, and of copies under other names, the run that was
// sealed last comes first, and before it one that is not sealed.
func Find(folder string) []string {
	var found []string
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		switch path := filepath.Join(folder, e.Name()); {
		case !e.IsDir():
		case isRun(path):
			found = append(found, path)
		case e.Name() == Folder:
			found = append(found, Find(path)...)
		default:
			below, _ := os.ReadDir(path)
			for _, b := range below {
				if b.IsDir() && isRun(filepath.Join(path, b.Name())) {
					found = append(found, filepath.Join(path, b.Name()))
				}
			}
		}
	}
	began, sealed := map[string]string{}, map[string]time.Time{}
	for _, path := range found {
		began[path], sealed[path] = age(path)
	}
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Or(cmp.Compare(began[b], began[a]), sealed[b].Compare(sealed[a]), cmp.Compare(a, b))
	})
	return found
}

// age is the second in which a run began, as names have it, and when it was sealed: far ahead where it is not.
func age(path string) (began string, sealed time.Time) {
	const form = "run_20060102_150405"
	sealed = time.Unix(1<<40, 0)
	if info, err := os.Lstat(filepath.Join(path, ManifestName)); err == nil {
		sealed = info.ModTime()
	}
	if name := filepath.Base(path); runForm.MatchString(name) {
		return name[:min(len(form), len(name))], sealed
	}
	if info, err := os.Lstat(path); err == nil {
		began = info.ModTime().Format(form)
	}
	return began, sealed
}
