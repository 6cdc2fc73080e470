package filemap

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// reading are the system calls that wait for the disk because they read a file: the place where the thread was seen
// last is what it waits for.
var reading = map[uint32]string{
	unix.SYS_READ: "read", unix.SYS_PREAD64: "pread64", unix.SYS_READV: "readv", unix.SYS_PREADV: "preadv",
	unix.SYS_PREADV2: "preadv2",
	unix.SYS_MMAP:    "mmap", unix.SYS_MADVISE: "madvise", unix.SYS_MLOCK: "mlock", unix.SYS_MLOCK2: "mlock2",
	unix.SYS_MLOCKALL: "mlockall",
	unix.SYS_SENDFILE: "sendfile", unix.SYS_SPLICE: "splice", unix.SYS_COPY_FILE_RANGE: "copy_file_range",
	unix.SYS_READAHEAD: "readahead",
	unix.SYS_FADVISE64: "fadvise64",
}

// others are calls that wait for the disk for other reasons.
var others = map[uint32]string{
	unix.SYS_OPENAT: "openat", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync",
	unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_EXECVE:    "execve", unix.SYS_GETDENTS64: "getdents64", unix.SYS_NEWFSTATAT: "newfstatat",
	unix.SYS_IO_GETEVENTS: "io_getevents",
}

func readsFiles(call uint32) bool { return reading[call] != "" }

// callName is the name of a system call, or its number.
func callName(call uint32) string {
	if name := reading[call]; name != "" {
		return name
	}
	if name := others[call]; name != "" {
		return name
	}
	return strconv.Itoa(int(call))
}
