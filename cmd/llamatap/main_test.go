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

// refused runs a command line, which must end with a status and an error of one line that names the facts, separated
// by " | ": the flag, file or value at fault, and what to use instead.
func refused(t *testing.T, line string, code int, facts string) {
	t.Helper()
	err := call(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' })...)
	if err == nil {
		t.Errorf("%s: not refused", line)
		return
	}
	if got := report(err); got != code || strings.Contains(err.Error(), "\n") || !names(err.Error(), facts) {
		t.Errorf("%s: status %d, %q\nwant status %d, one line that names %s", line, got, err, code, facts)
	}
}

// names reports whether text contains the facts, which are separated by " | ", in their order.
func names(text, facts string) bool {
	for _, fact := range strings.Split(facts, " | ") {
		_, after, found := strings.Cut(text, fact)
		if !found {
			return false
		}
		text = after
	}
	return true
}
