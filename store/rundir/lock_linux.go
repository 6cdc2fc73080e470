package rundir

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock locks a directory for this process until the file that it returns is closed; nil on a file system without locks.
func Lock(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if err == unix.EWOULDBLOCK {
			return nil, ErrInUse
		}
		return nil, nil
	}
	return file, nil
}

// InUse reports whether a process is writing the run directory: whether somebody holds its lock. It looks at the
// kernel's list of locks and takes none, so that it is in nobody's way. known is false where that list cannot be read.
//
// The list names the inode by the file system's own device number, which is not always stat's (overlayfs, btrfs):
// only the inode is compared.
func InUse(path string) (held, known bool) {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return false, true
	}
	for range lockLooks {
		list, whole, err := readLocks("/proc/locks")
		if err != nil {
			return false, false
		}
		if held := locked(list, stat.Ino); held || whole {
			return held, true
		}
	}
	return false, true
}

// lockLooks is how often a long list of locks is read: between two reads of it, others' locks come and go, and one that
// stays may be left out.
const lockLooks = 16

// readLocks reads the kernel's list of locks. It is whole where one read had all of it.
func readLocks(path string) (list string, whole bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer file.Close()
	buffer := make([]byte, 1<<16)
	for reads := 0; ; reads++ {
		n, err := file.Read(buffer)
		if err == io.EOF {
			return list, reads < 2, nil
		}
		if err != nil {
			return "", false, err
		}
		list += string(buffer[:n])
	}
}

// locked finds an inode in the kernel's list of locks. A line: "1: FLOCK  ADVISORY  WRITE 4711 fe:00:10118248 0 EOF".
func locked(list string, inode uint64) bool {
	want := ":" + strconv.FormatUint(inode, 10)
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[3] == "WRITE" && strings.HasSuffix(fields[5], want) {
			return true
		}
	}
	return false
}
