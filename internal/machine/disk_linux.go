package machine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const oDirect = unix.O_DIRECT

func refusesDirect(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

func datasync(file *os.File) error { return unix.Fdatasync(int(file.Fd())) }
