package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile builds one file of cgo/oracle with the C compiler and returns the path of the result, below build/compiled.
// What was built before from the same source, arguments, compiler and llama.cpp is used again.
func compile(t testing.TB, source string, args ...string) string {
	t.Helper()
	compiler, root := NeedCC(t), Root(t)
	path := filepath.Join(root, "cgo", "oracle", source)
	args = append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", path}, args...)
	hash := sha256.New()
	fmt.Fprintf(hash, "%q", append([]string{compiler}, args...))
	for _, name := range []string{path, filepath.Join(root, "third_party", "llama.cpp", "dist", ".stamp")} {
		text, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		fmt.Fprintf(hash, "%q", text)
	}
	folder := filepath.Join(root, "build", "compiled")
	built := filepath.Join(folder, fmt.Sprintf("%s-%.8x", strings.TrimSuffix(source, ".c"), hash.Sum(nil)))
	if _, err := os.Stat(built); err == nil {
		return built
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, err := os.MkdirTemp(folder, "new-") // other test processes may build the same
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	unfinished := filepath.Join(scratch, source)
	if out, err := exec.Command(compiler, append(args, "-o", unfinished)...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	if err := os.Rename(unfinished, built); err != nil {
		t.Fatal(err)
	}
	return built
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
