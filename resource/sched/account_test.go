package sched

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var update = flag.Bool("update", false, "write the golden files")

// The C that runs in the kernel does the same here, for both processors' numbers of system calls.
func TestAccountLogic(t *testing.T) {
	input, err := os.ReadFile("testdata/account.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"x86", "arm64"} {
		program := filepath.Join(t.TempDir(), "account")
		build := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I../bpf/include",
			"-D__TARGET_ARCH_"+arch,
			"-o", program, "testdata/account.c")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		run := exec.Command(program)
		run.Stdin = bytes.NewReader(input)
		got, err := run.Output()
		if err != nil {
			t.Fatal(err)
		}
		const golden = "testdata/account.golden"
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", arch, got, want)
		}
	}
}
