package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	preload(cmd, tap)
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

// preload has the tap loaded into a command by the machine's loader.
func preload(cmd *exec.Cmd, tap string) {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	tap, folder := preloaded(tap)
	if before := os.Getenv("LD_PRELOAD"); before != "" {
		tap += ":" + before
	}
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+tap)
	if folder != "" {
		cmd.Env = addLibraryPath(cmd.Env, folder)
	}
}

// preloaded is how a library to preload is named to a loader. Its list is separated by spaces, too: a path with some is
// the name alone, and a folder that is to be added to the library path, where spaces separate nothing.
func preloaded(library string) (name, folder string) {
	if strings.Contains(library, " ") {
		return filepath.Base(library), filepath.Dir(library)
	}
	return library, ""
}

// addLibraryPath puts folders before those in which loaders look for libraries.
func addLibraryPath(env []string, path string) []string {
	const name = "LD_LIBRARY_PATH="
	for _, entry := range env {
		if before, ok := strings.CutPrefix(entry, name); ok && before != "" {
			path += ":" + before
		}
	}
	// exec(2) keeps both
	env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name) })
	return append(env, name+path)
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
