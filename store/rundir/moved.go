package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Moved lists the files of a run that were moved to object storage to free the disk: sealed segments and complete parts
// of tables and events. Each copy was read back before the file was removed. The manifest lists them too.
type Moved struct {
	To    string    `json:"to"`    // URL of the run's copy
	Files []File    `json:"files"` // as the manifest lists them: parts, and for a segment its manifest
	Bytes int64     `json:"bytes"` // freed on the disk
	First time.Time `json:"first"` // time of the first move
	Last  time.Time `json:"last"`  // time of the last move
}

// String describes what was moved.
func (m *Moved) String() string {
	segments := 0
	for _, f := range m.Files {
		if strings.HasSuffix(f.Name, "/"+ManifestName) {
			segments++
		}
	}
	return fmt.Sprintf("%d segments and %d parts of tables and events", segments, len(m.Files)-segments)
}

// Has reports whether a file was moved. m may be nil.
func (m *Moved) Has(name string) bool {
	return m != nil && slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name })
}

// Absent returns what of m is not in a directory; nil: all of it is there, as in a copy of the whole run. m may be nil.
func (m *Moved) Absent(dir string) *Moved {
	if m == nil {
		return nil
	}
	absent := *m
	absent.Files = nil
	for _, f := range m.Files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); errors.Is(err, fs.ErrNotExist) {
			absent.Files = append(absent.Files, f)
		}
	}
	if absent.Files == nil {
		return nil
	}
	return &absent
}

// Move removes a sealed segment, or a whole part of a table or of lines, from the directory alone: the manifest will
// list it. metadata.json names it before.
func Move(d *Dir, name string) error {
	d.contents.markMoved(listed(name))
	return unlink(d, name)
}

// AddMoved records a file that was moved by a process before this one.
func AddMoved(d *Dir, f File) {
	d.contents.add(f)
	d.contents.markMoved(f.Name)
}
