package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/machine"
)

// Throttle makes a command write to the disk of a folder at most at that rate, in bytes per second. Where that
// cannot be had the test is skipped.
func Throttle(t testing.TB, cmd *exec.Cmd, folder string, rate int64) {
	t.Helper()
	release, err := machine.Throttle(cmd, folder, rate)
	if err != nil {
		Beyond(t, "a disk to be throttled", err.Error())
	}
	t.Cleanup(release)
}

// Quota makes a command take so many CPUs' time at most, and returns the folder of its control group. Where that
// cannot be had the test is skipped.
func Quota(t testing.TB, cmd *exec.Cmd, cpus float64) (group string) {
	t.Helper()
	NeedRoot(t)
	const first, second, period = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup", 100_000
	root, files := first, map[string]string{"cpu.cfs_period_us": fmt.Sprint(period),
		"cpu.cfs_quota_us": fmt.Sprint(int(cpus * period))}
	if _, err := os.Stat(first + "/cpu.cfs_quota_us"); err != nil {
		root, files = second, map[string]string{"cpu.max": fmt.Sprint(int(cpus*period), period)}
		os.WriteFile(second+"/cgroup.subtree_control", []byte("+cpu"), 0) // without it there is no cpu.max
	}
	group, err := os.MkdirTemp(root, fmt.Sprintf("llamatap-%d-", os.Getpid()))
	if err == nil {
		t.Cleanup(func() { os.Remove(group) })
		for name, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(group, name), []byte(text), 0))
		}
	}
	if err != nil {
		Beyond(t, "a control group with a CPU quota", err.Error())
	}
	// The shell puts itself into the group and becomes the command.
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return group
}
