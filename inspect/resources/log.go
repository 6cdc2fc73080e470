package resources

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/store/rundir"
)

// ErrNoLog is wrapped by the error for a directory that holds no resource events.
var ErrNoLog = errors.New("no resource events")

// part is one file of a log.
type part struct {
	path    string // as it is called now
	segment int    // 0: in the run directory itself
	number  int    // of the rotation
}

// before orders parts as they were written.
func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.segment, q.segment), cmp.Compare(p.number, q.number))
}

var partForm = regexp.MustCompile(`^(\.?)resource(?:\.([1-9][0-9]{0,8}))?\.jsonl(\.part)?$`)

// parts lists the files of a directory's log, and of its segments', in the order in which they were written.
func parts(dir string) ([]part, error) {
	all, err := partsOf(dir, 0)
	if err != nil {
		return nil, err
	}
	segments, err := rundir.Segments(dir)
	if err != nil {
		return nil, err
	}
	for i, name := range segments {
		of, err := partsOf(filepath.Join(dir, name), i+1)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // one that is being removed
			return nil, err
		}
		all = append(all, of...)
	}
	slices.SortFunc(all, part.compare)
	// A file that is renamed while the folder is read may be seen under both names.
	return slices.CompactFunc(all, func(p, q part) bool { return p.compare(q) == 0 }), nil
}

func partsOf(dir string, segment int) ([]part, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []part
	for _, e := range entries {
		m := partForm.FindStringSubmatch(e.Name())
		if m == nil || (m[1] == ".") != (m[3] == ".part") || !e.Type().IsRegular() { // a link may lead anywhere
			continue
		}
		number, _ := strconv.Atoi(m[2]) // "" is the first, 0
		all = append(all, part{filepath.Join(dir, e.Name()), segment, number})
	}
	return all, nil
}

// HasLog reports whether a directory holds resource events, finished or not.
func HasLog(dir string) bool {
	all, err := parts(dir)
	return err == nil && len(all) > 0
}

// LogSize is the size of a directory's log in bytes, over all its files.
func LogSize(dir string) int64 {
	all, _ := parts(dir)
	var size int64
	for _, p := range all {
		if info, err := os.Stat(p.path); err == nil {
			size += info.Size()
		}
	}
	return size
}

// noLog says what to give, or to record, instead.
func noLog(dir string) error {
	for _, pattern := range []string{"run_*", "*/run_*"} {
		runs, _ := fs.Glob(os.DirFS(dir), pattern)
		slices.SortFunc(runs, func(a, b string) int { return cmp.Compare(path.Base(b), path.Base(a)) })
		for _, run := range runs {
			if whole := filepath.Join(dir, run); HasLog(whole) {
				return fmt.Errorf("%s: %w here, but below it: give one run, such as the newest, %s", dir, ErrNoLog,
					whole)
			}
		}
	}
	if err := rundir.OfSegment(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrNoLog, err)
	}
	return fmt.Errorf("%s: %w: there is no %s; record a run with --tap-resource-level MINIMAL, DETAILED or VERBOSE",
		dir, ErrNoLog, rundir.EventsName)
}
