package tensors

import (
	"math"
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
	lost := &rundir.Rotated{}
	names, err := rundir.Segments(r.path)
	if err != nil {
		return err
	}
	last, next := 0, int64(0)
	for _, name := range names {
		n, _ := strconv.Atoi(strings.TrimPrefix(name, "seg-")) // Segments lists such names only
		lost.Segments, last = lost.Segments+n-last-1, n
		if first, last := tokensIn(filepath.Join(r.path, name)); last >= next {
			lost.Tokens += first - next
			next = last + 1
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
			if lost.Parts == nil {
				lost.Parts = map[string]rundir.RotatedParts{}
			}
			lost.Parts[table] = rundir.RotatedParts{Parts: n}
		}
	}
	if lost.Segments > 0 || len(lost.Parts) > 0 {
		r.meta.Rotated = lost
		r.note("the run had given back a part of its data by its settings: %s", lost)
	}
	return nil
}

// tokensIn returns the lowest and the highest token_index of a segment; last is -1 where it has none. The metadata of
// one that was cut off do not say.
func tokensIn(segment string) (first, last int64) {
	m, err := rundir.ReadMetadata(segment)
	if err == nil && m.Segment != nil && m.Segment.FirstToken != nil && m.Segment.LastToken != nil {
		return *m.Segment.FirstToken, *m.Segment.LastToken
	}
	first, last = math.MaxInt64, -1
	file, err := rundir.OpenFile(filepath.Join(segment, rundir.TokensName))
	if err != nil {
		return first, last
	}
	defer file.Close()
	ReadTokens(file, func(t *Token) error {
		first, last = min(first, t.Index), max(last, t.Index)
		return nil
	})
	return first, last
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
