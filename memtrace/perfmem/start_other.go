//go:build !linux

package perfmem

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Start needs Linux.
func Start(*exec.Cmd, Options) (*Sampler, error) {
	return nil, fmt.Errorf("%w: perf events need Linux: %w", perfevent.ErrOpen, errors.ErrUnsupported)
}
