package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AsideSuffix is appended to the name of a file that a repair backs up; from the second backup on with a
// number.
const AsideSuffix = ".orig"

// Repair is one repair of a run, in its metadata.
type Repair struct {
	At       time.Time `json:"at"`
	Llamatap string    `json:"llamatap,omitempty"` // version of the program that did it
	What     []string  `json:"what"`               // a sentence for everything that was found or done
}

// Mend opens a directory that is there, sealed or not, to seal it again with everything that is in it. Whoever
// changes a file of it puts its manifest aside before. A run that is still being written is ErrInUse.
func Mend(path string) (*Dir, error) {
	d := &Dir{path: filepath.Clean(path), again: true}
	if err := d.take(); err != nil {
		return nil, fmt.Errorf("open run directory %s: %w", path, err)
	}
	d.id = knownID(d.path)
	return d, nil
}

// knownID is the id of a run that is there, however its folder is called now: its metadata's, or else its manifest's.
func knownID(path string) string {
	if m, err := ReadMetadata(path); err == nil && m.RunID != "" {
		return m.RunID
	}
	if m, err := ReadManifest(path); err == nil && m.RunID != "" {
		return m.RunID
	}
	if full, err := filepath.Abs(path); err == nil && segmentForm.MatchString(filepath.Base(full)) {
		return filepath.Base(filepath.Dir(full)) + "/" + filepath.Base(full)
	}
	return ""
}

// PutAside gives a file of the directory another name, which it returns, so that one can be written in its place.
func (d *Dir) PutAside(name string) (aside string, err error) { return d.aside(name, disk.rename) }

// KeepAside gives a file of the directory another name, which it returns, beside its own, under which it stays
// until another one replaces it.
func (d *Dir) KeepAside(name string) (aside string, err error) {
	return d.aside(name, func(from, to string) error {
		if os.Link(from, to) == nil {
			return nil
		}
		return disk.rename(from, to) // a file system without links
	})
}

// asideName is the name of the nth file that is put aside under a name.
func asideName(name string, n int) string {
	if n == 1 {
		return name + AsideSuffix
	}
	return fmt.Sprint(name, AsideSuffix, n)
}

func (d *Dir) aside(name string, move func(from, to string) error) (aside string, err error) {
	path := filepath.Join(d.path, name)
	own, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("put %s aside: %w", name, err)
	}
	for n := 1; ; n++ {
		aside = asideName(name, n)
		there, err := os.Lstat(filepath.Join(d.path, aside))
		if err != nil {
			break
		}
		if os.SameFile(own, there) { // kept by one that was killed
			if err := os.Remove(filepath.Join(d.path, aside)); err != nil {
				return "", fmt.Errorf("put %s aside: %w", name, err)
			}
			break
		}
	}
	err = move(path, filepath.Join(d.path, aside))
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return "", fmt.Errorf("put %s aside: %w", name, err)
	}
	return aside, nil
}

// AddFound records every file that is in the directory and not recorded yet, with the size and hash that it has
// now. What is made later, sockets, checkpoints, and what begins with a dot are left out; segments are added with
// AddSegment.
func (d *Dir) AddFound() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), CheckpointSuffix) ||
			madeLater[e.Name()] || e.Name() == ManifestName || d.recorded(e.Name()) {
			continue
		}
		size, sum, err := hashFile(filepath.Join(d.path, e.Name()), anySize, func(int64) {})
		if err != nil {
			return fmt.Errorf("hash %s: %w", e.Name(), err)
		}
		d.mu.Lock()
		d.files = append(d.files, File{e.Name(), size, sum})
		d.mu.Unlock()
	}
	return nil
}

func (d *Dir) recorded(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if f.Name == name {
			return true
		}
	}
	return false
}

// AddFoundSegment records a segment that is sealed already, as AddSegment does.
func (d *Dir) AddFoundSegment(name string) error {
	size, sum, err := hashFile(filepath.Join(d.path, name, ManifestName), anySize, func(int64) {})
	if err != nil {
		return fmt.Errorf("add segment %s: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, File{name + "/" + ManifestName, size, sum})
	return nil
}
