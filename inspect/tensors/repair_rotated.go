package tensors

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// rotated notes what a run had given back before it was killed: what is there begins later, or has gaps where
// it kept a sample of requests. How many tokens that was is known from where segments begin; packets and rows were
// counted by that process alone.
func (r *repairer) rotated() error {
	if !r.killed || r.meta.Rotated != nil || r.moved != nil || !rotates(&r.meta) {
		return nil
	}
	gone := &rundir.Rotated{}
	names, err := rundir.Segments(r.path)
	if err != nil {
		return err
	}
	last, next := 0, int64(0)
	for _, name := range names {
		n, _ := strconv.Atoi(strings.TrimPrefix(name, "seg-")) // Segments lists such names only
		gone.Segments, last = gone.Segments+n-last-1, n
		m, err := rundir.ReadMetadata(filepath.Join(r.path, name))
		if err == nil && m.Segment != nil && m.Segment.FirstToken != nil && m.Segment.LastToken != nil {
			gone.Tokens += *m.Segment.FirstToken - next
			next = *m.Segment.LastToken + 1
		}
	}
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return err
	}
	first := map[string]int{}
	for _, e := range entries {
		if table, n, ok := rundir.PartOf(e.Name()); ok {
			if least, seen := first[table]; !seen || n < least {
				first[table] = n
			}
		}
	}
	for table, n := range first {
		if n > 0 && !r.single(table) {
			if gone.Parts == nil {
				gone.Parts = map[string]rundir.RotatedParts{}
			}
			gone.Parts[table] = rundir.RotatedParts{Parts: n}
		}
	}
	if gone.Segments > 0 || len(gone.Parts) > 0 {
		r.meta.Rotated = gone
		r.say("the run had given back a part of its data by its settings: %s", gone)
	}
	return nil
}

// single reports whether the first part of a table has the table's own name.
func (r *repairer) single(table string) bool { return exists(filepath.Join(r.path, table)) }

// rotates reports whether a run was to give back what is oldest, or what is not of its sample.
func rotates(m *rundir.Metadata) bool {
	settings := m.Settings()
	bound, _ := settings["max_disk"].Value.(string)
	sample, _ := settings["request_sample"].Value.(string)
	return strings.HasSuffix(bound, ":rotate") || sample != ""
}
