package rundir

import (
	"os"

	"golang.org/x/sys/unix"
)

// take makes the directory this process's, until it ends or seals.
func (d *Dir) take() error {
	file, err := os.Open(d.path)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if err == unix.EWOULDBLOCK {
			return ErrInUse
		}
		return nil // a file system without locks
	}
	d.lock = file
	return nil
}
