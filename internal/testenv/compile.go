package testenv

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile builds one file of cgo/oracle with the C compiler and returns the path of what it made.
func compile(t testing.TB, source string, args ...string) string {
	t.Helper()
	made := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	args = append([]string{
		"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
		"-o", made, filepath.Join(Root(t), "cgo", "oracle", source),
	}, args...)
	if out, err := exec.Command(NeedCC(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return made
}

// libraries returns the folders of dist's libraries and of its C library.
func libraries(t testing.TB, dist string) (libs, glibc string) {
	t.Helper()
	return glob1(t, filepath.Join(dist, "usr", "lib", "*-linux-gnu")),
		glob1(t, filepath.Join(dist, "glibc", "usr", "lib", "*-linux-gnu"))
}

// glob1 returns the one path that pattern matches.
func glob1(t testing.TB, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s matches %d files, want 1 (%v)", pattern, len(paths), err)
	}
	return paths[0]
}
