//go:build linux

package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// onKernels are the tests that other kernels are to pass too, by package: those of which the clock of an emulated
// processor is no judge. Some ask for all that the collectors can record, which kernels before 6.12 cannot.
var onKernels = []struct {
	dir, tests string
	old        bool // on 6.1 too
}{
	{"oracle", "TestShortOfMemory", false},
	{"oracle", "TestColdRun/moe", false},
	{"resource/blockio", "TestFull|TestOrphans|TestTargets|TestCgroups|TestOldKernel|" +
		"TestAddPID|TestPlain|TestPolled|TestPartly", true},
	{"resource/filemap", "TestReads|TestAbsent|TestFork", false},
	{"resource/bpf", ".", false},
	{"resource/sched", "TestReadMemory|TestReadThisMachine|TestStalls|TestGroupStalls", false},
}

// kernels are those of scripts/vm-kernels, which is run where there are none.
func kernels(t *testing.T) []kernel {
	t.Helper()
	root := testenv.Root(t)
	for range 2 {
		all, err := find(filepath.Join(root, "build", "vm"))
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			return all
		}
		if out, err := exec.Command(filepath.Join(root, "scripts", "vm-kernels")).CombinedOutput(); err != nil {
			testenv.Beyond(t, "kernels from Debian's archive", string(out))
		}
	}
	t.Fatal("scripts/vm-kernels made none")
	return nil
}

// TestKernels runs the tests of the host collectors on other kernels, in virtual machines: the programs are made
// for each by its types (CO-RE), and a model is short of memory in a control group of version 2.
func TestKernels(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBinary(t)
	// What it preloads is compiled here: a machine cannot write to this file system.
	testenv.NeedTool(t, "llama-completion")
	machine, root := newMachine(t), testenv.Root(t)
	only := regexp.MustCompile(os.Getenv("LLAMATAP_VM_ONLY")) // of kernel/package
	for _, k := range kernels(t) {
		for _, p := range onKernels {
			first, _, _ := strings.Cut(p.tests, "|")
			name := strings.TrimSuffix(k.Name, "-amd64") + "/" + p.dir + "/" + first
			if !only.MatchString(name) || strings.HasPrefix(k.Name, "6.1.") && !p.old {
				continue
			}
			t.Run(name, func(t *testing.T) {
				program := filepath.Join(t.TempDir(), "test")
				cmd := exec.Command("go", "test", "-c", "-o", program, "./"+p.dir)
				cmd.Dir = root
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", cmd, err, out)
				}
				// There are groups of version 2 alone.
				out, status := machine.Run(t, k, 15*time.Minute, filepath.Join(root, p.dir), program, "-test.v",
					"-test.run", p.tests, "-test.skip", "/v1")
				if t.Logf("%s", out); status != 0 || !strings.Contains(out, "--- PASS: ") {
					t.Errorf("status %d", status)
				}
			})
		}
	}
}

// TestOnKernels: each of those tests exists. It runs with every make test, because make nightly alone runs them.
func TestOnKernels(t *testing.T) {
	for _, p := range onKernels {
		files, err := filepath.Glob(filepath.Join(testenv.Root(t), p.dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, file := range files {
			one, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, one...)
		}
		for _, test := range strings.Split(p.tests, "|") {
			name, _, _ := strings.Cut(test, "/")
			if name == "." {
				name = "Test"
			}
			if !regexp.MustCompile(`(?m)^func ` + name + `\w*\(t \*testing\.T\)`).Match(text) {
				t.Errorf("no test of %s is %s", p.dir, test)
			}
		}
	}
}
