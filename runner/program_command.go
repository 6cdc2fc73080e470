package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// Command prepares a program with the tap preloaded. A name without a slash is first looked for among llama.cpp's
// own programs, then in PATH. The command's standard streams are this process's.
func Command(name string, args []string) (*exec.Cmd, error) {
	if own, err := FindProgram(name); err == nil {
		return own.Command(name, args)
	}
	tap, err := tapLibrary()
	if err != nil {
		return nil, err
	}
	path, err := lookUp(name)
	if err != nil {
		return nil, err
	}
	if err := checkProgram(path); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Args[0] = name
	cmd.Env = llama.Preload(cmd.Environ(), tap)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}

// CommandPrefix is where the llama.cpp of a program prepared by Command lies; empty for one that brings its own.
func CommandPrefix(cmd *exec.Cmd) string {
	if in, ok := ownInstallation(cmd); ok {
		return in.LibDir
	}
	return ""
}

// ownInstallation is the installation that a command's program belongs to.
func ownInstallation(cmd *exec.Cmd) (llama.Installation, bool) {
	in, err := llama.Installed()
	return in, err == nil && strings.HasPrefix(programOf(cmd), in.Bin+"/")
}

// CommandBackends is the folder of ggml's backends that a program prepared by Command shall be made to load; empty for
// one that finds its own, such as a program of another installation and one whose loader lies next to them.
func CommandBackends(cmd *exec.Cmd) string {
	in, ok := ownInstallation(cmd)
	if !ok || cmd.Path == besideBackends(in) {
		return ""
	}
	return in.Backends
}

// programOf is the program that a command really runs.
func programOf(cmd *exec.Cmd) string {
	const loaders = 7 // loader --preload TAP --library-path DIRS --argv0 NAME, then the program
	if len(cmd.Args) > loaders && cmd.Args[5] == "--argv0" && cmd.Args[0] == cmd.Path {
		return cmd.Args[loaders]
	}
	return cmd.Path
}

func tapLibrary() (string, error) {
	path, err := llama.Beside(llama.TapLibrary)
	if err != nil {
		return "", fmt.Errorf("find the tap: %w", err)
	}
	if !isFile(path) {
		return "", fmt.Errorf("the tap %s is missing; 'make build' makes it next to the binary", path)
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// PlainCommand is how exec(2) starts a program without the tap, found as Command finds it: file, arguments,
// environment.
func PlainCommand(name string, args []string) (path string, argv, env []string, err error) {
	if own, err := FindProgram(name); err == nil {
		path, argv, env = own.Plain(name, args)
		return path, argv, env, nil
	}
	if path, err = lookUp(name); err != nil {
		return "", nil, nil, err
	}
	return path, append([]string{name}, args...), os.Environ(), nil
}
