package rundir

import (
	"fmt"
	"os"
	"path/filepath"
)

// asideSuffix is appended to the name of a file that a repair backs up; from the second backup on with a number.
const asideSuffix = ".orig"

// MoveToBackup renames a file of a run directory to the name of a backup, which it returns, so that another file
// can be written in its place.
func MoveToBackup(dir, name string) (backup string, err error) {
	return moveToBackup(dir, name, disk.rename)
}

// LinkBackup gives a file of a run directory the name of a backup, which it returns, besides its own, under which
// it stays until another file replaces it.
func LinkBackup(dir, name string) (backup string, err error) {
	return moveToBackup(dir, name, func(from, to string) error {
		if os.Link(from, to) == nil {
			return nil
		}
		return disk.rename(from, to) // a file system without links
	})
}

// asideName is the name of the nth backup of a file.
func asideName(name string, n int) string {
	if n == 1 {
		return name + asideSuffix
	}
	return fmt.Sprint(name, asideSuffix, n)
}

func moveToBackup(dir, name string, move func(from, to string) error) (backup string, err error) {
	path := filepath.Join(dir, name)
	own, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("back up %s: %w", name, err)
	}
	for n := 1; ; n++ {
		backup = asideName(name, n)
		existing, err := os.Lstat(filepath.Join(dir, backup))
		if err != nil {
			break
		}
		if os.SameFile(own, existing) { // linked by a repair that was killed
			if err := os.Remove(filepath.Join(dir, backup)); err != nil {
				return "", fmt.Errorf("back up %s: %w", name, err)
			}
			break
		}
	}
	err = move(path, filepath.Join(dir, backup))
	if err == nil {
		err = Sync(dir)
	}
	if err != nil {
		return "", fmt.Errorf("back up %s: %w", name, err)
	}
	return backup, nil
}
