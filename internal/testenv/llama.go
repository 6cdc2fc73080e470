package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NeedLlama returns the absolute path of third_party/llama.cpp/dist, the fetched llama.cpp.
func NeedLlama(t testing.TB) string {
	t.Helper()
	dist := filepath.Join(Root(t), "third_party", "llama.cpp", "dist")
	if _, err := os.Stat(filepath.Join(dist, ".stamp")); err != nil {
		llama.miss(t, err.Error())
	}
	return dist
}

// A Tool is a program of the fetched llama.cpp, unmodified.
type Tool struct {
	// Path starts the program as it is: a script that runs it with the fetched loader, libraries
	// and CPU backends.
	Path string
	// Preload is an object that makes the program write out all of its text before it ends, and look for backends
	// in the fetched llama.cpp alone.
	Preload string
}

// NeedPrograms asks for those programs of llama.cpp that arguments name, such as llama-completion. Debian's has all of
// them; another version (third_party/llama.cpp/version) is built with some, or without.
func NeedPrograms(t testing.TB, args ...string) {
	t.Helper()
	dist := NeedLlama(t)
	if packages, _ := os.ReadFile(filepath.Join(dist, "versions")); !bytes.HasPrefix(packages, []byte("llama.cpp ")) {
		return
	}
	for _, name := range args {
		if !strings.HasPrefix(name, "llama-") || strings.ContainsAny(name, "/. ") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dist, "run", name)); err != nil {
			Beyond(t, name+" of this version of llama.cpp", "it was built without")
		}
	}
}

// NeedTool asks for a program of llama.cpp by its name, such as llama-completion.
func NeedTool(t testing.TB, name string) *Tool {
	t.Helper()
	NeedPrograms(t, name)
	run := filepath.Join(NeedLlama(t), "run")
	path := filepath.Join(run, name)
	if _, err := os.Stat(path); err != nil {
		llama.miss(t, err.Error())
	}
	return &Tool{Path: path, Preload: compile(t, "stock.c", "-fPIC", "-shared", fmt.Sprintf("-DBACKENDS=%q", run))}
}

// Command returns the command that runs the tool; the script execs, so signals reach the program.
//
// Unlike a bare start of Path it loses no text and uses no backend that the machine has installed (cgo/oracle/stock.c).
func (tool *Tool) Command(args ...string) *exec.Cmd {
	return exec.Command(tool.Path, append([]string{"--preload=" + tool.Preload}, args...)...)
}

// TellSize is an object that, preloaded into a program, makes it write each new size of its terminal, as
// [ROWSxCOLUMNS].
func TellSize(t testing.TB) string {
	t.Helper()
	return compile(t, "winch.c", "-fPIC", "-shared")
}

// HangOnInterrupt is an object that, preloaded into a program, makes its handler of SIGINT never return.
func HangOnInterrupt(t testing.TB) string {
	t.Helper()
	return compile(t, "hang.c", "-fPIC", "-shared", "-ldl")
}

// FakeNVML is an NVIDIA management library with one GPU: 87 % of it busy, 41 % of its memory's time, 3 of 64 GiB in
// use, 250.5 W at every moment. FAKE_NVML_LACKS and FAKE_NVML_ENERGY in the environment change it: see its source.
func FakeNVML(t testing.TB) string {
	t.Helper()
	return compile(t, "nvml.c", "-fPIC", "-shared")
}
