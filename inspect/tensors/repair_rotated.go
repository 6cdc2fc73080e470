package tensors

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// rotated notes what a run that rotates had given back before it was killed: what is there begins later. How many
// tokens that were is known from where the first segment begins; packets and rows were counted by that process alone.
func (r *repairer) rotated() error {
	if !r.killed || r.meta.Rotated != nil || !rotates(r.meta.Config) {
		return nil
	}
	gone := &rundir.Rotated{}
	names, err := rundir.Segments(r.path)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		n, _ := strconv.Atoi(strings.TrimPrefix(names[0], "seg-")) // Segments lists such names only
		gone.Segments = n - 1
		m, err := rundir.ReadMetadata(filepath.Join(r.path, names[0]))
		if err == nil && m.Segment != nil && m.Segment.FirstToken != nil {
			gone.Tokens = *m.Segment.FirstToken
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
		r.say("the run had given back its beginning to stay within its bounds: %s", gone)
	}
	return nil
}

// single reports whether the first part of a table has the table's own name.
func (r *repairer) single(table string) bool { return exists(filepath.Join(r.path, table)) }

// rotates reports whether a run was to give back what is oldest at a bound of the disk.
func rotates(config any) bool {
	text, err := json.Marshal(config)
	var settings struct {
		Settings map[string]struct {
			Value any `json:"value"`
		} `json:"settings"`
	}
	if err != nil || json.Unmarshal(text, &settings) != nil {
		return false
	}
	value, _ := settings.Settings["max_disk"].Value.(string)
	return strings.HasSuffix(value, ":rotate")
}
