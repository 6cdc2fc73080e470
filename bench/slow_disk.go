package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/llamatap/llamatap/internal/machine"
)

// slowDisk is what the disk of a throttled recording takes, in bytes per second.
const slowDisk = 20 << 20

// dropStatus is the exit status of a run that lost something.
const dropStatus = 3

// SlowDisk is Run on a disk of 20 MB/s.
func (m Model) SlowDisk(name string, tap ...string) Side {
	return Side{name, func(ctx context.Context) (Sample, error) {
		return m.run(ctx, tap, func(cmd *exec.Cmd, out string) (func(),
			error) {
			return machine.Throttle(cmd, out, slowDisk)
		})
	}}
}

// canThrottle returns why a folder's disk cannot be throttled; nil: it can be.
func canThrottle(folder string) error {
	release, err := machine.Throttle(exec.Command(os.Args[0]), folder, slowDisk)
	if err == nil {
		release()
	}
	return err
}

// slowDisk compares a model whose recording may lose tensors, on a disk that is far too slow for it, with one that
// is not recorded.
func (t Tap) slowDisk(plain Side) []Pair {
	const gate = "(b) all nodes, drop, disk of 20 MB/s / off, decode"
	const waiting = "(k) all nodes, block, disk of 20 MB/s / off, decode"
	if !t.wants(gate) && !t.wants(waiting) {
		return nil
	}
	if err := canThrottle(t.Model.Dir); err != nil {
		t.Table.Note("left out: recordings on a disk of 20 MB/s: " + err.Error())
		return nil
	}
	test := t.Model.SlowDisk("drop, 20 MB/s", "--tap-granularity", "full_tensor", "--tap-codec", "none", "--tap-dtype",
		"f16", "--tap-overflow", "drop")
	waits := t.Model.SlowDisk("block, 20 MB/s", "--tap-granularity", "full_tensor", "--tap-codec", "none",
		"--tap-dtype", "f16")
	return []Pair{{Base: plain, Test: test, Gates: []Gate{{Name: gate, AtLeast: 0.95, Of: Decode}}},
		{Base: plain, Test: waits, Overhead: true, Gates: []Gate{{Name: waiting, Of: Decode}}}}
}

// lossy reports whether a command ended well but for what its recording lost.
func lossy(ctx context.Context, err error) bool {
	var exit *exec.ExitError
	return ctx.Err() == nil && errors.As(err, &exit) && exit.ExitCode() == dropStatus
}
