package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
)

// draft is an export that is being made.
type draft struct {
	*rundir.Draft
	force bool // replaces what is at its place
}

// ErrExists is wrapped when the output of an export already exists.
var ErrExists = errors.New("is there already")

// newDraft begins an export that will be published at final.
func newDraft(final string, force bool) (draft, error) {
	final = filepath.Clean(final)
	if info, err := os.Lstat(final); err == nil && !force {
		return draft{}, fmt.Errorf("%s %w: choose another place with -o, or --force to replace it", final, ErrExists)
	} else if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return draft{}, fmt.Errorf("%s is neither a file nor a folder: choose another place with -o", final)
	}
	d, err := rundir.NewDraft(final)
	if err != nil {
		return draft{}, fmt.Errorf("cannot write %s: %w: choose another place with -o", final, err)
	}
	return draft{d, force}, nil
}

// publishFolder syncs the draft and gives it its name.
func (d draft) publishFolder() error { return d.Publish(d.force) }

// publishFiles syncs files of the draft and gives them their names beside each other, in that order: the last one
// makes the others a result.
func (d draft) publishFiles(names ...string) error {
	for _, name := range names {
		if err := rundir.Sync(d.Path(name)); err != nil {
			return err
		}
	}
	folder := filepath.Dir(d.Final)
	for _, name := range names {
		to := filepath.Join(folder, name)
		if info, err := os.Lstat(to); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: choose another place with -o", to)
		} else if err == nil && !d.force {
			return fmt.Errorf("%s %w: choose another place with -o, or --force to replace it", to, ErrExists)
		}
	}
	for _, name := range names {
		if err := os.Rename(d.Path(name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return errors.Join(rundir.Sync(folder), os.RemoveAll(d.Dir))
}
