package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// ExplainFull gives the error of writing the file at path a remedy if the disk is full, without the name of a temporary
// file. It returns other errors, and nil, as they are.
func ExplainFull(path string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("write %s: %w: free space there, or choose another place with -o", path, err)
}
