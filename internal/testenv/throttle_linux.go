package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Throttle makes a command write to the disk of a folder at most at that rate, in bytes per second: in a cgroup of its own, of
// version 1 or 2. Where that cannot be had the test is skipped.
func Throttle(t testing.TB, cmd *exec.Cmd, folder string, rate int64) {
	t.Helper()
	disk, err := diskOf(folder)
	if err != nil {
		Beyond(t, "a disk to be throttled", err.Error())
	}
	group, err := throttledGroup(disk, rate)
	if err != nil {
		Beyond(t, "a cgroup that throttles a disk", err.Error())
	}
	t.Cleanup(func() { os.Remove(group) })
	// The shell puts itself into the group and becomes the command.
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = shell
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

// throttledGroup makes a cgroup.
func throttledGroup(disk string, rate int64) (string, error) {
	const first, second = "/sys/fs/cgroup/blkio", "/sys/fs/cgroup"
	name := fmt.Sprintf("llamatap-test-%d", os.Getpid())
	if _, err := os.Stat(filepath.Join(first, "blkio.throttle.write_bps_device")); err == nil {
		group := filepath.Join(first, name)
		return group, setGroup(group, "blkio.throttle.write_bps_device", fmt.Sprintf("%s %d", disk, rate))
	}
	group := filepath.Join(second, name)
	if err := os.WriteFile(filepath.Join(second, "cgroup.subtree_control"), []byte("+io"), 0); err != nil {
		return "", err
	}
	return group, setGroup(group, "io.max", fmt.Sprintf("%s wbps=%d", disk, rate))
}

func setGroup(group, file, text string) error {
	if err := os.Mkdir(group, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
		os.Remove(group)
		return err
	}
	return nil
}
