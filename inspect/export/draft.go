package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
)

// draft is a hidden folder beside the place of an export, in which it is made.
type draft struct {
	dir   string
	final string
	force bool
	made  []string // folders that were made to hold it, innermost first
}

// ErrExists is wrapped when something stands at the place of an export already.
var ErrExists = errors.New("is there already")

// newDraft begins an export that is to stand at final.
func newDraft(final string, force bool) (*draft, error) {
	final = filepath.Clean(final)
	if info, err := os.Lstat(final); err == nil && !force {
		return nil, fmt.Errorf("%s %w: choose another place with -o, or --force to replace it", final, ErrExists)
	} else if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is neither a file nor a folder: choose another place with -o", final)
	}
	d := &draft{final: final, force: force}
	for folder := filepath.Dir(final); ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(folder); err == nil || folder == filepath.Dir(folder) {
			break
		}
		d.made = append(d.made, folder)
	}
	err := os.MkdirAll(filepath.Dir(final), 0o700)
	if err == nil {
		d.dir, err = os.MkdirTemp(filepath.Dir(final), "."+filepath.Base(final)+".part-*")
	}
	if err != nil {
		d.discard()
		return nil, fmt.Errorf("cannot write %s: %w: choose another place with -o", final, err)
	}
	return d, nil
}

// path is the place of a file while it is made.
func (d *draft) path(name string) string { return filepath.Join(d.dir, name) }

// create makes a file of the draft, and the folders to it.
func (d *draft) create(name string) (*os.File, error) {
	path := d.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// discard removes the draft, and the folders that were made for it unless something is in them. After a publish
// nothing is left of the draft.
func (d *draft) discard() {
	os.RemoveAll(d.dir)
	for _, folder := range d.made {
		os.Remove(folder) // fails where something is in it
	}
}

// publishFolder syncs the draft and gives it its name.
func (d *draft) publishFolder() error {
	if err := syncAll(d.dir); err != nil {
		return err
	}
	if d.force {
		old := d.dir + ".old"
		defer os.RemoveAll(old)
		if err := os.Rename(d.final, old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(d.dir, d.final); err != nil {
		return err
	}
	return rundir.Sync(filepath.Dir(d.final))
}

// publishFiles syncs files of the draft and gives them their names beside each other, in that order: the last one
// makes the others a result.
func (d *draft) publishFiles(names ...string) error {
	for _, name := range names {
		if err := rundir.Sync(d.path(name)); err != nil {
			return err
		}
	}
	folder := filepath.Dir(d.final)
	for _, name := range names {
		to := filepath.Join(folder, name)
		if info, err := os.Lstat(to); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: choose another place with -o", to)
		} else if err == nil && !d.force {
			return fmt.Errorf("%s %w: choose another place with -o, or --force to replace it", to, ErrExists)
		}
	}
	for _, name := range names {
		if err := os.Rename(d.path(name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return errors.Join(rundir.Sync(folder), os.RemoveAll(d.dir))
}

// syncAll syncs all files and folders below path.
func syncAll(path string) error {
	return filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return rundir.Sync(name)
	})
}
