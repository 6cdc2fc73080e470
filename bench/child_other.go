//go:build !linux

package bench

import "os/exec"

// StartChild starts a program, whose end comes on the channel.
func StartChild(cmd *exec.Cmd) (ended <-chan error, err error) {
	end := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { end <- cmd.Wait() }()
	return end, nil
}
