package runner

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
)

// prefix is an installation as cmake --install leaves it, in a folder of its own, with programs of this test's binary.
func prefix(t *testing.T, names ...string) llama.Installation {
	t.Helper()
	root := t.TempDir()
	in := llama.Installation{Bin: filepath.Join(root, "bin"), LibDir: filepath.Join(root, "lib"),
		LibPath: filepath.Join(root, "lib")}
	if err := os.Mkdir(in.Bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(in.Bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func TestProgramsOfAFolder(t *testing.T) {
	in := prefix(t, "llama-cli", "ls", "convert.py")
	notes := filepath.Join(in.Bin, "llama-notes.txt")
	if err := os.WriteFile(notes, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"llama-cli": true, "ls": false, "convert.py": false,
		"llama-notes.txt": false, "llama-none": false} {
		if got := isProgram(filepath.Join(in.Bin, name)); got != want {
			t.Errorf("%s is a program of llama.cpp: %v", name, got)
		}
	}
}

// TestNoProgramIsItself: a link to this binary in the place of a program is none, so that nothing starts itself for
// ever.
func TestNoProgramIsItself(t *testing.T) {
	in := prefix(t, "llama-cli")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(in.Bin, "llama-server")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	if !isSelf(link) || isSelf(filepath.Join(in.Bin, "llama-cli")) || isSelf(filepath.Join(in.Bin, "none")) {
		t.Error("a link to this binary is not recognised")
	}
}

func TestFindRefuses(t *testing.T) {
	for _, name := range []string{"", "llama-nothing", "../bin/llama-cli", "/bin/ls", "ls"} {
		_, err := FindProgram(name)
		if !errors.Is(err, ErrNoProgram) && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestPlainOfPrefix: a program of one's own build starts as it is, with its libraries found.
func TestPlainOfPrefix(t *testing.T) {
	in := prefix(t, "llama-cli")
	p := Program{Name: "llama-cli", Path: filepath.Join(in.Bin, "llama-cli"), in: in}
	t.Setenv("LD_LIBRARY_PATH", "/before")
	path, argv, env := p.Plain("./called", []string{"-p", "--", ""})
	if path != p.Path || !slices.Equal(argv, []string{"./called", "-p", "--", ""}) {
		t.Errorf("%s %q", path, argv)
	}
	var found []string
	for _, entry := range env {
		if strings.HasPrefix(entry, "LD_LIBRARY_PATH=") {
			found = append(found, entry)
		}
	}
	if !slices.Equal(found, []string{"LD_LIBRARY_PATH=" + in.LibPath + ":/before"}) {
		t.Errorf("libraries from %q", found)
	}
	if p.in.LibPath = "/usr/lib/x86_64-linux-gnu"; !slices.Equal(p.environment(), os.Environ()) {
		t.Error("a system's libraries change the environment")
	}
}

// TestPlainWithLoader checks that a fetched llama.cpp starts through the loader next to its backends.
func TestPlainWithLoader(t *testing.T) {
	in := prefix(t)
	in.Bin = filepath.Join(filepath.Dir(in.Bin), "usr", "bin")
	run := filepath.Join(in.Bin, "..", "..", "run")
	for _, dir := range []string{in.Bin, run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := Program{Name: "llama-cli", Path: filepath.Join(in.Bin, "llama-cli"), in: in}
	if p.loader() != "" || p.Starter() != p.Path {
		t.Errorf("loader %q, starter %q", p.loader(), p.Starter())
	}
	for _, name := range []string{"ld.so", "llama-cli"} {
		if err := os.WriteFile(filepath.Join(run, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, argv, env := p.Plain("llama-cli", []string{"-h"})
	if path != filepath.Join(run, "ld.so") || !strings.HasSuffix(strings.Join(argv, " "),
		"--argv0 llama-cli "+p.Path+" -h") || !slices.Equal(env, os.Environ()) {
		t.Errorf("%s %q", path, argv)
	}
	if p.Starter() != filepath.Join(run, "llama-cli") {
		t.Errorf("starter %q", p.Starter())
	}
}
