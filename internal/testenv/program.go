package testenv

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// imported holds the lists of modules that were imported in this process, as Python writes them.
var imported sync.Map

// NeedBinary returns the path of bin/llamatap, which make build makes beside bin/libllamatap.so.
func NeedBinary(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(Root(t), "bin")
	for _, name := range []string{"llamatap", "libllamatap.so"} {
		// The stat also makes a cached test result depend on the file.
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			binary.miss(t, err.Error())
		}
	}
	return filepath.Join(bin, "llamatap")
}

// NeedPython returns the interpreter of the oracle tests' environment, in which modules import. It tries each list
// of them once: an import of pandas takes half a second. With -short it skips the test.
func NeedPython(t testing.TB, modules ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compares with Python, in no other goroutine: " + notWithRace)
	}
	interpreter := filepath.Join(Root(t), "build", "venv", "bin", "python")
	if _, err := os.Stat(interpreter); err != nil {
		python.miss(t, err.Error())
	}
	imports := "pass"
	if len(modules) > 0 {
		imports = "import " + strings.Join(modules, ", ")
	}
	if _, done := imported.Load(imports); done {
		return interpreter
	}
	if out, err := exec.Command(interpreter, "-c", imports).CombinedOutput(); err != nil {
		python.miss(t, strings.TrimSpace(string(out)))
	}
	imported.Store(imports, true)
	return interpreter
}

// NeedStrace returns the path of a strace that may trace a child here.
func NeedStrace(t testing.TB) string {
	t.Helper()
	path := strace.find(t, "strace")
	if out, err := exec.Command(path, "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		Beyond(t, "a strace that may trace", strings.TrimSpace(string(out)))
	}
	return path
}

// NeedJQ returns the path of jq.
func NeedJQ(t testing.TB) string {
	t.Helper()
	return jq.find(t, "jq")
}

// NeedPerf returns the path of the program perf.
func NeedPerf(t testing.TB) string {
	t.Helper()
	return perf.find(t, "perf")
}

// NeedCC returns the path of a C compiler.
func NeedCC(t testing.TB) string {
	t.Helper()
	return cc.find(t, cmp.Or(os.Getenv("CC"), "cc"))
}

// NeedSlurm returns the path of one of Slurm's programs, or of munge's.
func NeedSlurm(t testing.TB, name string) string {
	t.Helper()
	return slurm.find(t, name)
}

// NeedMkfs returns the path of mkfs.ext4 or its like.
func NeedMkfs(t testing.TB, name string) string {
	t.Helper()
	return mkfs.find(t, name)
}

// NeedSystemd returns the path of systemd-analyze.
func NeedSystemd(t testing.TB) string {
	t.Helper()
	return systemd.find(t, "systemd-analyze")
}

// NeedEmulator returns the path of an emulator of whole machines, for package vm.
func NeedEmulator(t testing.TB) string {
	t.Helper()
	return qemu.find(t, "qemu-system-x86_64")
}

// NeedJava asks for a Java that starts.
func NeedJava(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("java", "-version").CombinedOutput(); err != nil {
		java.miss(t, fmt.Sprintf("%v: %s", err, out))
	}
}

// NeedPrometheus returns the paths of prometheus and promtool.
func NeedPrometheus(t testing.TB) (server, tool string) {
	t.Helper()
	return prometheus.find(t, "prometheus"), prometheus.find(t, "promtool")
}
