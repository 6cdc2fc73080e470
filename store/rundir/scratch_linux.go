package rundir

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nameless makes a file that never has a name.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, "(scratch)")), nil
}

// states are the locks of this process's state folders, which end with it.
var states []*os.File

// lockState marks a state folder as in use until this process ends; false where another process has taken it, or
// removed it.
func lockState(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		file.Close()
		return false
	}
	if _, err := os.Stat(path); err != nil {
		file.Close()
		return false
	}
	states = append(states, file)
	return true
}
