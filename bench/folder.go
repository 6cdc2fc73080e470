package bench

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/llamatap/llamatap/store/rundir"
)

// workName is how the name of a folder begins that holds what is recorded while it is measured.
const workName = "llamatap-bench-"

var workForm = regexp.MustCompile(`^` + workName + `[0-9]+$`)

// workFolder makes such a folder in dir. Those of benchmarks that were killed are removed: nobody holds their lock.
func workFolder(dir string) (path string, remove func(), err error) {
	entries, _ := os.ReadDir(dir) // another time, if not now
	for _, e := range entries {
		if old := filepath.Join(dir, e.Name()); e.IsDir() && workForm.MatchString(e.Name()) {
			if lock, err := rundir.Lock(old); err == nil && lock != nil {
				os.RemoveAll(old)
				lock.Close()
			}
		}
	}
	for { // until it is locked, another benchmark may take it for one that was left
		if path, err = os.MkdirTemp(dir, workName); err != nil {
			return "", nil, err
		}
		lock, err := rundir.Lock(path)
		if err == nil {
			_, err = os.Lstat(path)
		}
		if err == nil {
			return path, func() { os.RemoveAll(path); lock.Close() }, nil
		}
		lock.Close()
		if !errors.Is(err, rundir.ErrInUse) && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
	}
}
