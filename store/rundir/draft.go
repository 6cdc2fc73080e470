package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Draft is a hidden folder beside the place of a result, in which the result is made.
type Draft struct {
	Dir   string   // the folder
	Final string   // the place
	made  []string // folders that were made to hold it, innermost first
}

// NewDraft begins a result that will be at final. Discard must be called, also after Publish.
func NewDraft(final string) (*Draft, error) {
	d := &Draft{Final: filepath.Clean(final)}
	parent := filepath.Dir(d.Final)
	for folder := parent; ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(folder); err == nil || folder == filepath.Dir(folder) {
			break
		}
		d.made = append(d.made, folder)
	}
	err := os.MkdirAll(parent, 0o700)
	if err == nil {
		d.Dir, err = os.MkdirTemp(parent, "."+filepath.Base(d.Final)+partSuffix+"-*")
	}
	if err != nil {
		d.Discard()
		return nil, err
	}
	return d, nil
}

// Path is the place of a file while it is made.
func (d *Draft) Path(name string) string { return filepath.Join(d.Dir, name) }

// Create makes a file of the draft, and the folders to it.
func (d *Draft) Create(name string) (*os.File, error) {
	path := d.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Discard removes the draft, and the folders that were made for it unless something is in them. After Publish nothing
// is left of the draft.
func (d *Draft) Discard() {
	os.RemoveAll(d.Dir)
	for _, folder := range d.made {
		os.Remove(folder) // fails where something is in it
	}
}

// Publish syncs the draft and gives it its name. With replace, an earlier result of that name is removed.
func (d *Draft) Publish(replace bool) error {
	err := filepath.WalkDir(d.Dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return Sync(name)
	})
	if err != nil {
		return err
	}
	if replace {
		old := d.Dir + ".old"
		defer os.RemoveAll(old)
		if err := os.Rename(d.Final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(d.Dir, d.Final); err != nil {
		return err
	}
	return Sync(filepath.Dir(d.Final))
}
