package testenv

import (
	"path/filepath"
	"testing"
)

// Loader is the command that starts a program of the machine's with the C library and the search path that libllama needs.
func Loader(t testing.TB) []string {
	t.Helper()
	libs, glibc := libraries(t, NeedLlama(t))
	return []string{glob1(t, filepath.Join(glibc, "ld-linux-*")), "--library-path", glibc + ":" + libs + ":" + filepath.Join(libs, "llama")}
}

// Greedy compiles cgo/oracle/greedy.c, a llama.cpp program of somebody's own, and returns its path and the folder of backends that
// it is given as its second argument. A late one is not linked with llama.cpp and opens the library by itself.
func Greedy(t testing.TB, late bool) (program, backends string) {
	t.Helper()
	dist := NeedLlama(t)
	libs, glibc := libraries(t, dist)
	args := []string{
		"-I" + filepath.Join(dist, "usr", "include"), "-L" + libs, "-L" + glibc, "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed",
	}
	if late {
		args = append(args, "-DLATE", "-ldl")
	} else {
		args = append(args, "-lllama", "-lggml", "-lggml-base")
	}
	// What libllama needs is named too: its own search path hides the program's.
	args = append(args, "-l:libstdc++.so.6", "-l:libgomp.so.1", "-l:libgcc_s.so.1", "-l:libm.so.6",
		"-Wl,--disable-new-dtags", "-Wl,-rpath,"+glibc+":"+libs+":"+filepath.Join(libs, "llama"),
		"-Wl,--dynamic-linker,"+glob1(t, filepath.Join(glibc, "ld-linux-*")))
	return compile(t, "greedy.c", args...), filepath.Join(dist, "run")
}
