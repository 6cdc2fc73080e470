//go:build !linux

package machine

import (
	"errors"
	"fmt"
	"os/exec"
)

// Throttle returns an error that wraps errors.ErrUnsupported: only Linux throttles a disk.
func Throttle(*exec.Cmd, string, int64) (release func(), err error) {
	return nil, fmt.Errorf("throttle a disk: %w: it takes Linux", errors.ErrUnsupported)
}
