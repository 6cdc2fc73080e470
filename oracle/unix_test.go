//go:build linux

package oracle

import "golang.org/x/sys/unix"

// terminate asks a process to end.
const terminate = unix.SIGTERM
