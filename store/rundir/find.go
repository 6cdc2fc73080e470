package rundir

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

var runForm = regexp.MustCompile(`^run_[0-9A-Za-z_.-]{1,100}$`)

// IsRunName reports whether a folder of that name is a run directory.
func IsRunName(name string) bool { return runForm.MatchString(name) }

// isRun reports whether a path is the directory of a run or a link to it, by its name or, of a copy with another name,
// by its files: other programs have files of these names, too.
func isRun(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() && (IsRunName(filepath.Base(path)) ||
		namesRun(filepath.Join(path, ManifestName)) ||
		namesRun(filepath.Join(path, MetadataName)))
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

// Find returns the paths of the run directories in a folder, in the folders in it, and in its [Folder], newest first. A
// link to a run is one of them, unless the run is found itself; other links are not followed. Names begin with the
// second in which a run began; of one second, and of copies under other names, the run that was sealed last comes
// first, and before it one that is not sealed.
func Find(folder string) []string {
	var found []string
	linked := false
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		switch path := filepath.Join(folder, e.Name()); {
		case isRun(path):
			found, linked = append(found, path), linked || !e.IsDir()
		case !e.IsDir():
		case e.Name() == Folder:
			found = append(found, Find(path)...)
		default:
			below, _ := os.ReadDir(path)
			for _, b := range below {
				if path := filepath.Join(path, b.Name()); isRun(path) {
					found, linked = append(found, path), linked || !b.IsDir()
				}
			}
		}
	}
	if linked {
		found = distinct(found)
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

// distinct leaves out links to a run that is found itself, and all but one of the links to one that is not. The order
// is lost.
func distinct(found []string) []string {
	byPlace := map[string]string{}
	for _, path := range found {
		info, err := os.Lstat(path)
		place, failed := filepath.EvalSymlinks(path)
		if err != nil || failed != nil {
			continue
		}
		if byPlace[place] == "" || info.IsDir() {
			byPlace[place] = path
		}
	}
	return slices.Collect(maps.Values(byPlace))
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
	if info, err := os.Stat(path); err == nil {
		began = info.ModTime().Format(form)
	}
	return began, sealed
}
