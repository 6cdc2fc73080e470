package prof

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// restarts are the errors by which the kernel restarts a call that a signal interrupted, from errnoRestart on. User
// space sees EINTR, or nothing.
var restarts = [...]string{"ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND", "ENOIOCTLCMD", "ERESTART_RESTARTBLOCK",
	"EPROBE_DEFER"}

// errnoName is the name of the error that a slot of calls.h counts.
func errnoName(slot int) string {
	if slot > errnoLast {
		return restarts[slot-errnoLast-1]
	}
	if name := unix.ErrnoName(unix.Errno(slot)); name != "" {
		return name
	}
	return strconv.Itoa(slot)
}

// classes are the kinds of errors, see resource.ProfSyscall.
var classes = map[unix.Errno]string{
	unix.EAGAIN: "again", unix.ETIMEDOUT: "again", unix.EINPROGRESS: "again", unix.EALREADY: "again",
	unix.EINTR:  "interrupted",
	unix.ENOENT: "missing", unix.ENXIO: "missing", unix.ENODEV: "missing", unix.ESRCH: "missing",
	unix.ECONNREFUSED: "missing",
	unix.EHOSTUNREACH: "missing", unix.ENETUNREACH: "missing", unix.ENOTCONN: "missing", unix.EDESTADDRREQ: "missing",
	unix.EPERM: "denied", unix.EACCES: "denied", unix.EROFS: "denied", unix.ETXTBSY: "denied",
	unix.ENOMEM: "full", unix.ENOSPC: "full", unix.EMFILE: "full", unix.ENFILE: "full", unix.EDQUOT: "full",
	unix.ENOBUFS: "full",
	unix.EFBIG:   "full", unix.EIO: "broken", unix.EPIPE: "broken", unix.ECONNRESET: "broken",
	unix.ECONNABORTED: "broken",
	unix.ENETDOWN:     "broken", unix.ESTALE: "broken", unix.EINVAL: "wrong", unix.EBADF: "wrong", unix.EFAULT: "wrong",
	unix.ENOTSOCK: "wrong", unix.EISDIR: "wrong", unix.ENOTDIR: "wrong", unix.EEXIST: "wrong", unix.EOPNOTSUPP: "wrong",
	unix.ENOSYS: "wrong", unix.ESPIPE: "wrong", unix.EMSGSIZE: "wrong", unix.ENAMETOOLONG: "wrong",
	unix.EADDRINUSE: "wrong",
	unix.EISCONN:    "wrong", unix.EAFNOSUPPORT: "wrong",
}

// errnoClass is the class of the error that a slot counts.
func errnoClass(slot int) string {
	if slot > errnoLast {
		return "interrupted"
	}
	if class := classes[unix.Errno(slot)]; class != "" {
		return class
	}
	return "other"
}
