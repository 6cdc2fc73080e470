package testenv

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Instrumented compiles a C++ program that uses llama-resource-instrumentation.h, and returns its path and the
// folder of backends that it can be given. The program is linked with bin/libllama-resource-instrumentation.so and
// with ggml.
func Instrumented(t testing.TB, source string) (program, backends string) {
	t.Helper()
	dist := NeedLlama(t)
	bin := filepath.Join(Root(t), "bin")
	// The stats also make a cached test result depend on the files.
	if _, err := os.Stat(filepath.Join(bin, "libllama-resource-instrumentation.so")); err != nil {
		binary.miss(t, err.Error())
	}
	if _, err := os.Stat(source); err != nil {
		t.Fatal(err)
	}
	compiler := NeedCXX(t)
	program = filepath.Join(t.TempDir(), "instrumented")
	args := append([]string{
		"-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", filepath.Join(dist, "usr", "include"),
		"-I" + filepath.Join(Root(t), "cgo", "instrument"), "-o", program, source,
		"-L" + bin, "-lllama-resource-instrumentation", "-Wl,-rpath," + bin,
	}, linked(t, dist, "-lggml", "-lggml-base")...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return program, filepath.Join(dist, "run")
}

// NeedCXX returns the path of a C++ compiler.
func NeedCXX(t testing.TB) string {
	t.Helper()
	return cxx.find(t, cmp.Or(os.Getenv("CXX"), "c++"))
}

// InstrumentAsk compiles cgo/instrument/test/ask.c and returns its path.
func InstrumentAsk(t testing.TB) string {
	t.Helper()
	folder := filepath.Join(Root(t), "cgo", "instrument")
	sources, err := filepath.Glob(filepath.Join(folder, "*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no C in %s: %v", folder, err)
	}
	program := filepath.Join(t.TempDir(), "ask")
	args := append([]string{
		"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I" + filepath.Join(NeedLlama(t), "usr", "include"), "-o",
		program,
		filepath.Join(folder, "test", "ask.c"), "-pthread",
	}, sources...)
	if out, err := exec.Command(NeedCC(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("compile ask.c: %v\n%s", err, out)
	}
	return program
}
