//go:build linux

package control

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/store/rundir"
)

// pathLimit is how long the path of a socket may be, without its zero.
const pathLimit = len(unix.RawSockaddrUnix{}.Path) - 1

// newName is the socket's name until somebody listens to it. It is no longer than rundir.SocketName, so that it fits
// where
// that fits.
const newName = "control.new"

// address returns a path of the run directory's socket that is short enough to bind and connect. done gives back
// what it needs.
func address(dir string) (path string, done func(), err error) {
	path = filepath.Join(dir, rundir.SocketName)
	if len(path) <= pathLimit {
		return path, func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, rundir.SocketName), func() { unix.Close(fd) }, nil
}
