// Package host starts programs that run llama.cpp with the tap preloaded: llama.cpp's own, from the installation that this
// binary was built for, and any other dynamically linked one.
package host

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// TapLibrary is the file name of the tap as a preloadable object. It stands beside the llamatap binary.
const TapLibrary = "libllamatap.so"

// ErrCannotTap occurs when a program cannot take the tap: static, setuid, or of another architecture.
var ErrCannotTap = errors.New("cannot be tapped")

// Command prepares a program with the tap preloaded. A name without a slash is first looked for among llama.cpp's own programs,
// then in PATH. The command's standard streams are this process's.
func Command(name string, args []string) (*exec.Cmd, error) {
	tap, err := tapLibrary()
	if err != nil {
		return nil, err
	}
	installation, err := llama.Installed()
	if err != nil {
		return nil, err
	}
	var cmd *exec.Cmd
	if own := filepath.Join(installation.Bin, name); !strings.Contains(name, "/") && isFile(own) {
		cmd = ownProgram(installation, own, args, tap)
	} else if cmd, err = otherProgram(name, args, tap); err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}

// Backends is the folder of ggml's backends that a program prepared by Command shall load; empty for one that brings its own.
func Backends(cmd *exec.Cmd) string {
	installation, err := llama.Installed()
	if err != nil || !strings.HasPrefix(programOf(cmd), installation.Bin+"/") {
		return ""
	}
	return installation.Backends
}

// programOf is the program that a command really runs.
func programOf(cmd *exec.Cmd) string {
	for i, arg := range cmd.Args {
		if arg == "--argv0" && i+2 < len(cmd.Args) {
			return cmd.Args[i+2]
		}
	}
	return cmd.Path
}

func tapLibrary() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the tap: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), TapLibrary)
	if !isFile(path) {
		return "", fmt.Errorf("the tap %s is missing; 'make build' makes it beside the binary", path)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// ownProgram runs one of llama.cpp's programs, through the installation's loader where it has one.
func ownProgram(in llama.Installation, path string, args []string, tap string) *exec.Cmd {
	if in.Loader == "" {
		return preloaded(exec.Command(path, args...), tap)
	}
	loader := []string{"--preload", tap, "--library-path", in.LibPath, "--argv0", path, path}
	return exec.Command(in.Loader, append(loader, args...)...)
}

func otherProgram(name string, args []string, tap string) (*exec.Cmd, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("program %q: not found; give its path, or the name of one of llama.cpp's own programs", name)
	}
	if err := checkProgram(path); err != nil {
		return nil, err
	}
	return preloaded(exec.Command(path, args...), tap), nil
}

func preloaded(cmd *exec.Cmd, tap string) *exec.Cmd {
	cmd.Env = os.Environ()
	if before := os.Getenv("LD_PRELOAD"); before != "" {
		tap += ":" + before
	}
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+tap)
	return cmd
}

// checkProgram refuses what a preloaded object cannot get into. A script is left to its interpreter.
func checkProgram(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return fmt.Errorf("program %s: %w: it is setuid or setgid, and the loader preloads nothing into such a program", path, ErrCannotTap)
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return nil
		}
	}
	return fmt.Errorf("program %s: %w: it is statically linked; use a build with shared libraries (-DBUILD_SHARED_LIBS=ON)", path, ErrCannotTap)
}

// Plain is how to become a program without the tap: the path and arguments for exec(2). llama.cpp's own programs find their CPU
// backends in the folder of the loader that starts them.
func Plain(name string, args []string) (path string, argv []string, err error) {
	installation, err := llama.Installed()
	if err == nil && !strings.Contains(name, "/") && isFile(filepath.Join(installation.Bin, name)) {
		start := filepath.Join(installation.Bin, "..", "..", "run", name)
		if installation.Loader == "" && !isFile(start) {
			start = filepath.Join(installation.Bin, name)
		}
		return start, append([]string{name}, args...), nil
	}
	if path, err = exec.LookPath(name); err != nil {
		return "", nil, fmt.Errorf("program %q: not found; give its path, or the name of one of llama.cpp's own programs", name)
	}
	return path, append([]string{name}, args...), nil
}
