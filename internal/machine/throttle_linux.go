package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Throttle makes a command that was not started, and what it starts, write to the disk of a folder at most at that
// rate, in bytes per second: in a control group of its own, of version 1 or 2. release removes the group when the
// command has ended. Where that cannot be had the error wraps errors.ErrUnsupported and says why.
func Throttle(cmd *exec.Cmd, folder string, rate int64) (release func(), err error) {
	unsupported := func(err error) error {
		return fmt.Errorf(
			"throttle the disk of %s: %w: %w; it takes root, a disk, and control groups for block devices", folder,
			errors.ErrUnsupported, err)
	}
	disk, err := diskOf(folder)
	if err != nil {
		return nil, unsupported(err)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		return nil, unsupported(err)
	}
	group, err := throttledGroup(disk, rate)
	if err != nil {
		return nil, unsupported(err)
	}
	// The shell puts itself into the group and becomes the command.
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = shell
	return func() { os.Remove(group) }, nil
}

// diskOf is the whole disk, as major:minor, that a folder lies on.
func diskOf(folder string) (string, error) {
	var info unix.Stat_t
	if err := unix.Stat(folder, &info); err != nil {
		return "", err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev))
	path, err := filepath.EvalSymlinks("/sys/dev/block/" + device)
	if err != nil {
		return "", fmt.Errorf("%s lies on no disk: %w", folder, err)
	}
	if _, err := os.Stat(filepath.Join(path, "partition")); err != nil {
		return device, nil
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(path), "dev"))
	return strings.TrimSpace(string(whole)), err
}

// throttledGroup makes a control group with a name of its own.
func throttledGroup(disk string, rate int64) (string, error) {
	const first, second = "/sys/fs/cgroup/blkio", "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(first, "blkio.throttle.write_bps_device")); err == nil {
		return newGroup(first, "blkio.throttle.write_bps_device", fmt.Sprintf("%s %d", disk, rate))
	}
	if err := os.WriteFile(filepath.Join(second, "cgroup.subtree_control"), []byte("+io"), 0); err != nil {
		return "", err
	}
	return newGroup(second, "io.max", fmt.Sprintf("%s wbps=%d", disk, rate))
}

func newGroup(root, file, text string) (string, error) {
	group, err := os.MkdirTemp(root, fmt.Sprintf("llamatap-%d-", os.Getpid()))
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(group, 0o755),
		os.WriteFile(filepath.Join(group, file), []byte(text), 0)); err != nil {
		os.Remove(group)
		return "", err
	}
	return group, nil
}
