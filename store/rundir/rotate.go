package rundir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Rotated is what was given back of a run: the oldest, so that the run stayed within its bounds, and segments in which
// no request of its sample has a part. It was whole and sealed, or a whole part of a table or of lines.
type Rotated struct {
	// Segments is how many, from seg-00001 on where no sample of requests is kept; Tokens and Packets are those of
	// them. Packets is absent where a killed run was repaired: nobody counted them.
	Segments int     `json:"segments,omitempty"`
	Tokens   int64   `json:"tokens,omitempty"`
	Packets  *uint64 `json:"packets,omitempty"`
	// Parts are those of tables and of lines, by the name that the first one has, such as requests.parquet.
	Parts map[string]RotatedParts `json:"parts,omitempty"`
	Bytes int64                   `json:"bytes,omitempty"` // that all of it took on the disk
	// Causes is how often each bound asked for room: max_disk, min_free; request_sample: segments.
	Causes map[string]int `json:"causes,omitempty"`
	First  time.Time      `json:"first,omitzero"` // when something was given back first
	Last   time.Time      `json:"last,omitzero"`  // and last
}

// RotatedParts are parts of a table or of lines that were given back: from the first one on, so many.
type RotatedParts struct {
	Parts int    `json:"parts"`
	Rows  uint64 `json:"rows,omitempty"` // or lines; absent where nobody counted them
}

// AddPart notes a part of rows that was given back.
func (r *Rotated) AddPart(table string, rows uint64) {
	if r.Parts == nil {
		r.Parts = map[string]RotatedParts{}
	}
	p := r.Parts[table]
	r.Parts[table] = RotatedParts{p.Parts + 1, p.Rows + rows}
}

// String says what was given back.
func (r *Rotated) String() string {
	var parts []string
	if r.Segments > 0 {
		text := fmt.Sprintf("%d segments with %d tokens", r.Segments, r.Tokens)
		if r.Packets != nil {
			text += fmt.Sprintf(" and %d packets", *r.Packets)
		}
		parts = append(parts, text)
	}
	for _, table := range []string{EventsName, RequestsName, TraceName} {
		if p, ok := r.Parts[table]; ok {
			parts = append(parts, fmt.Sprintf("%d parts of %s", p.Parts, table))
		}
	}
	return strings.Join(parts, ", ")
}

// EventsGivenBack says how much of the log of events is not in a directory any more; "" where it is whole, or nothing
// is known.
func (m *Metadata) EventsGivenBack(dir string) string {
	removed, text := m.gone(dir, EventsName)
	if text == "" && removed.Parts > 0 && m.Account != nil && m.Account.Events != nil {
		return fmt.Sprintf("the oldest %d of %d events were given back to hold the size of the run",
			m.Account.Events.Rotated, m.Account.Events.Written)
	}
	if text == "" && removed.Parts > 0 {
		return "the oldest events were given back to hold the size of the run"
	}
	return text
}

// TraceGivenBack says the same of the table of accesses.
func (m *Metadata) TraceGivenBack(dir string) string {
	removed, text := m.gone(dir, TraceName)
	if text == "" && removed.Parts > 0 {
		text = "the oldest accesses were given back to hold the size of the run"
		if removed.Rows > 0 {
			text = fmt.Sprintf("the oldest %d rows of accesses were given back to hold the size of the run",
				removed.Rows)
		}
	}
	return text
}

// gone is what was given back of a table or of lines, and says where the parts are that object storage alone has.
func (m *Metadata) gone(dir, table string) (back RotatedParts, elsewhere string) {
	if m == nil {
		return back, ""
	}
	if m.Rotated != nil {
		back = m.Rotated.Parts[table]
	}
	if m.Rotated == nil && m.Account == nil { // a live run has no sums yet, nor has a killed one
		back.Parts = firstPart(dir, table)
	}
	moved, n := m.Moved.Absent(dir), 0
	if moved == nil {
		return back, ""
	}
	for _, f := range moved.Files {
		if of, _, ok := PartOf(f.Name); ok && of == table {
			n++
		}
	}
	if n > 0 {
		elsewhere = fmt.Sprintf("the oldest %d parts of %s are in %s alone", n, table, moved.To)
	}
	return back, elsewhere
}

// firstPart is the number of the first part of a table or of lines that is there; 0 where none is.
func firstPart(dir, table string) int {
	entries, _ := os.ReadDir(dir)
	first := -1
	for _, e := range entries {
		if e.Name() == table {
			return 0
		}
		if of, number, ok := PartOf(e.Name()); ok && of == table && (first < 0 || number < first) {
			first = number
		}
	}
	return max(first, 0)
}

// partForm is what a part of a table or of lines that can be given back is called: the first of lines has no number.
var partForm = regexp.MustCompile(`^(?:(resource)(?:\.([1-9][0-9]{0,8}))?(\.jsonl)|` +
	`(requests|trace)\.([0-9]{3,9})(\.parquet))$`)

// PartOf returns the table or file of lines of which a file is a part that can be given back, with its number from 0.
func PartOf(file string) (table string, number int, ok bool) {
	m := partForm.FindStringSubmatch(file)
	if m == nil {
		return "", 0, false
	}
	fmt.Sscan(m[2]+m[5], &number) // the first of lines has none: 0
	return m[1] + m[3] + m[4] + m[6], number, true
}

// Oldest returns the oldest sealed segment or whole part of the run that can be given back, with the file that the
// manifest lists for it: the part, or the segment's manifest. "": there is none.
func Oldest(d *Dir) (name string, f File) {
	for _, f := range d.contents.here() {
		if segment, ok := strings.CutSuffix(f.Name, "/"+ManifestName); ok {
			return segment, f
		}
		if _, _, ok := PartOf(f.Name); ok {
			return f.Name, f
		}
	}
	return "", File{}
}

// Remove removes a sealed segment, or a whole part of a table or of lines, from the directory and from the list. What
// is left of a removal that is cut off is either the part or nothing.
func Remove(d *Dir, name string) error {
	d.contents.remove(listed(name))
	return unlink(d, name)
}

// listed is the file that the manifest lists for a segment or a part.
func listed(name string) string {
	if _, _, ok := PartOf(name); ok {
		return name
	}
	return name + "/" + ManifestName
}

// unlink removes a segment or a part from the directory.
func unlink(d *Dir, name string) error {
	if _, _, ok := PartOf(name); !ok {
		return removeSegment(d.Path(), name)
	}
	path := filepath.Join(d.Path(), name)
	size := SizeOf(path)
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	d.contents.written.Add(-size)
	return nil
}

// SizeOf is the size of a regular file in bytes, or of those in a folder. What vanishes meanwhile counts as nothing.
func SizeOf(path string) (bytes int64) {
	filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
