package testenv

import (
	"path/filepath"
	"testing"
)

// Loader is the command that starts a program of the machine's with the C library and the search path that libllama
// needs.
func Loader(t testing.TB) []string {
	t.Helper()
	libs, glibc := libraries(t, NeedLlama(t))
	return []string{glob1(t, filepath.Join(glibc, "ld-linux-*")), "--library-path",
		glibc + ":" + libs + ":" + filepath.Join(libs, "llama")}
}

// Greedy compiles cgo/oracle/greedy.c, a llama.cpp program of somebody's own, and returns its path and the folder
// of backends that it is given as its second argument. A late one is not linked with llama.cpp and opens the
// library by itself.
func Greedy(t testing.TB, late bool) (program, backends string) {
	t.Helper()
	dist := NeedLlama(t)
	args := []string{"-I" + filepath.Join(dist, "usr", "include")}
	if late {
		args = append(append(args, "-DLATE", "-ldl"), linked(t, dist)...)
	} else {
		args = append(args, linked(t, dist, "-lllama", "-lggml", "-lggml-base")...)
	}
	return compile(t, "greedy.c", args...), filepath.Join(dist, "run")
}

// linked are the linker's arguments for a program with these libraries of dist, and with dist's loader and C library.
func linked(t testing.TB, dist string, names ...string) []string {
	t.Helper()
	libs, glibc := libraries(t, dist)
	args := append([]string{"-L" + libs, "-L" + glibc, "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"}, names...)
	// What libllama needs is named too: its own search path hides the program's.
	return append(args, "-l:libstdc++.so.6", "-l:libgomp.so.1", "-l:libgcc_s.so.1", "-l:libm.so.6",
		"-Wl,--disable-new-dtags", "-Wl,-rpath,"+glibc+":"+libs+":"+filepath.Join(libs, "llama"),
		"-Wl,--dynamic-linker,"+glob1(t, filepath.Join(glibc, "ld-linux-*")))
}
