package main

import (
	"os"
	"os/exec"
	"strings"
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

// refused runs a command line, which must end with a status and an error of one line that contains want.
func refused(t *testing.T, line string, code int, want string) {
	t.Helper()
	err := call(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' })...)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
		report(err) != code {
		t.Errorf("%s:\ngot  %v (status %d)\nwant %s (status %d)", line, err, report(err), want, code)
	}
}
