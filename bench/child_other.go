//go:build !linux

package bench

import "os/exec"

// runChild runs a program to its end.
func runChild(cmd *exec.Cmd) error { return cmd.Run() }
