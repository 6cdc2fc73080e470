package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AsideSuffix is what the name of a file gets behind it that a repair has put aside; from the second one on with a number.
const AsideSuffix = ".orig"

// Repair is one repair of a run, in its metadata.
type Repair struct {
	At       time.Time `json:"at"`
	Llamatap string    `json:"llamatap,omitempty"` // version of the program that did it
	What     []string  `json:"what"`               // a sentence for everything that was found or done
}

// Mend opens a directory that is there, sealed or not, to seal it anew with everything that is in it: its manifest is put aside, and
// from then on it is no result until Seal. A run that is still being written is ErrInUse.
func Mend(path string) (*Dir, error) {
	d := &Dir{path: filepath.Clean(path)}
	if err := d.take(); err != nil {
		return nil, fmt.Errorf("open run directory %s: %w", path, err)
	}
	if full, err := filepath.Abs(path); err == nil && segmentForm.MatchString(filepath.Base(full)) {
		d.id = filepath.Base(filepath.Dir(full)) + "/" + filepath.Base(full)
	}
	if manifest, err := ReadManifest(path); err == nil && manifest.RunID != "" {
		d.id = manifest.RunID
	}
	if _, err := d.PutAside(ManifestName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d, nil
}

// PutAside gives a file of the directory another name, which it returns, so that one can be written in its place.
func (d *Dir) PutAside(name string) (aside string, err error) {
	aside = name + AsideSuffix
	for n := 2; ; n++ {
		if _, err := os.Lstat(filepath.Join(d.path, aside)); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprint(name, AsideSuffix, n)
	}
	err = disk.rename(filepath.Join(d.path, name), filepath.Join(d.path, aside))
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return "", fmt.Errorf("put %s aside: %w", name, err)
	}
	return aside, nil
}

// AddFound records every file that is in the directory and not recorded yet, with the size and hash that it has now. What is made
// later, sockets, checkpoints, and what begins with a dot are left out; segments are added with AddSegment.
func (d *Dir) AddFound() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), CheckpointSuffix) || madeLater[e.Name()] || e.Name() == ManifestName || d.recorded(e.Name()) {
			continue
		}
		size, sum, err := hashFile(filepath.Join(d.path, e.Name()), anySize)
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
	size, sum, err := hashFile(filepath.Join(d.path, name, ManifestName), anySize)
	if err != nil {
		return fmt.Errorf("add segment %s: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, File{name + "/" + ManifestName, size, sum})
	return nil
}
