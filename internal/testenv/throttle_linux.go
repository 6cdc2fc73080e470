package testenv

import (
	"os/exec"
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
