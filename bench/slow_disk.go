package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"

	"github.com/llamatap/llamatap/internal/machine"
)

// slowDisk is what the disk of a throttled recording takes, in bytes per second.
const slowDisk = 20 << 20

// slowDisk compares a model whose recording may lose tensors, on a disk that is far too slow for it, with one that
// is not recorded.
func (t Tap) slowDisk(plain Side) []Pair {
	possible := func() error {
		release, err := machine.Throttle(exec.Command(os.Args[0]), t.Model.Dir, slowDisk)
		if err == nil {
			release()
		}
		return err
	}
	throttle := func(cmd *exec.Cmd, out string) (func(), error) { return machine.Throttle(cmd, out, slowDisk) }
	all := []string{"--tap-granularity", "full_tensor", "--tap-codec", "none", "--tap-dtype", "f16"}
	side := func(name string, tap ...string) Side {
		return Side{name, func(ctx context.Context) (Sample, error) { return t.Model.run(ctx, tap, throttle) }}
	}
	return []Pair{
		{Base: plain, Test: side("drop, 20 MiB/s", append(slices.Clone(all), "--tap-overflow", "drop")...),
			Gates:    []Gate{{Name: "(b) all nodes, drop, disk of 20 MiB/s / off, decode", AtLeast: 0.95, Of: Decode}},
			Possible: possible},
		{Base: plain, Test: side("block, 20 MiB/s", append(slices.Clone(all), "--tap-memory", "32M")...),
			Overhead: true,
			Gates:    []Gate{{Name: "(k) all nodes, block, disk of 20 MiB/s / off, decode", Of: Decode}},
			Possible: possible},
	}
}

// lossy reports whether a command ended well but for what its recording lost.
func lossy(ctx context.Context, err error) bool {
	var exit *exec.ExitError
	return ctx.Err() == nil && errors.As(err, &exit) && exit.ExitCode() == statusLossy
}
