package bpf

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// tracefs is where the kernel keeps the folder of its tracepoints.
const tracefs = "/sys/kernel/tracing"

// findTracefs mounts tracefs where it is not and this user may, as trace-cmd does: the numbers of tracepoints stand there. Where that fails,
// attaching says what to do.
var findTracefs = sync.OnceFunc(func() {
	for _, dir := range []string{tracefs, "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return
		}
	}
	_ = unix.Mount("nodev", tracefs, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "")
})
