//go:build unix

package mrm

import (
	"errors"
	"os"
	"syscall"
)

// syncFolder makes renames in a folder last. A file system that cannot do that for folders says EINVAL, and needs
// it not.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
