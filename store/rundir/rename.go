package rundir

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Rename gives a file of the run that was closed another name, which no other file may have.
func (d *Dir) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	named := func(name string) int { return slices.IndexFunc(d.files, func(f File) bool { return f.Name == name }) }
	at := named(from)
	switch {
	case d.sealed:
		return fmt.Errorf("rename %s: %w", from, ErrSealed)
	case to == ManifestName || !plainName(to) || at < 0 || named(to) >= 0:
		return fmt.Errorf("rename %s to %q: %w", from, to, ErrName)
	}
	if err := disk.rename(filepath.Join(d.path, from), filepath.Join(d.path, to)); err != nil {
		return fmt.Errorf("rename %s: %w", from, err)
	}
	d.files[at].Name = to
	return syncDir(d.path)
}
