package blockio

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Under returns the name of the block device that a file or a folder lies on, for Options.Devices. It is an error
// where there is none, such as for tmpfs and network file systems.
func Under(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find the block device of a file: %w", err)
	}
	dev := uint64(info.Sys().(*syscall.Stat_t).Dev)
	n := newNames(os.DirFS("/"))
	if d := n.device(unix.Major(dev)<<20 | unix.Minor(dev)); d.name != "?" {
		return d.name, nil
	}
	// File systems of several devices, such as btrfs, have a number of their own: their mounts name one of the devices.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find the block device of %s: %w", path, err)
	}
	if name := mountedFrom(string(mounts), fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s lies on no block device; see: findmnt -T %s", path, path)
}

// mountedFrom returns the device that a mount's number stands for in /proc/self/mountinfo (proc(5)); "" is none.
func mountedFrom(mounts, number string) string {
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ") // optional fields end there; then type, source, options
		f, g := strings.Fields(before), strings.Fields(after)
		if ok && len(f) > 2 && len(g) > 1 && f[2] == number && strings.HasPrefix(g[1], "/dev/") {
			return strings.TrimPrefix(g[1], "/dev/")
		}
	}
	return ""
}
