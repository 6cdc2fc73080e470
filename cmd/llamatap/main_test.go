package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestMain lets the test binary be llamatap itself when self starts it.
func TestMain(m *testing.M) {
	if os.Getenv("LLAMATAP_TEST_SELF") != "" {
		os.Exit(dispatch(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// self is the command that runs this build of llamatap as a process of its own.
func self(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LLAMATAP_TEST_SELF=1")
	return cmd
}
