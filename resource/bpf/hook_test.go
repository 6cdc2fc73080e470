//go:build linux

package bpf

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

func TestArguments(t *testing.T) {
	testenv.NeedBPF(t)
	// sys_exit was handed registers and result ever since; Linux has no hook of the other name.
	if n := Arguments("sys_exit"); n != 3 {
		t.Errorf("sys_exit is handed %d arguments, want 3", n)
	}
	if n := Arguments("no_such_hook"); n != 0 {
		t.Errorf("a hook that is not there is handed %d", n)
	}
}
