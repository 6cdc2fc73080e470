package runner

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// ErrNoProgram occurs when the installation has no program of that name.
var ErrNoProgram = errors.New("no program of the installed llama.cpp")

// A Program is one of llama.cpp's own, unmodified, in the installation that this binary was built for.
type Program struct {
	Name string
	Path string // of the file itself; it may need Loader and libraries to start
	in   llama.Installation
}

// FindProgram finds one of llama.cpp's own programs by its name, in the installation and nowhere else, so that links of
// the same name in PATH cannot lead back here. The error is ErrNoProgram, or ErrCannotTap where the file of that
// name is this very binary.
func FindProgram(name string) (Program, error) {
	in, err := llama.Installed()
	if err != nil {
		return Program{}, err
	}
	p := Program{Name: name, Path: filepath.Join(in.Bin, name), in: in}
	if name == "" || strings.Contains(name, "/") || !isProgram(p.Path) {
		return Program{}, fmt.Errorf("%q: %w in %s; 'llamatap help' lists them", name, ErrNoProgram, in.Bin)
	}
	if isSelf(p.Path) {
		return Program{}, fmt.Errorf("program %s: %w: it is a link to llamatap in llama.cpp's own folder; install "+
			"llama.cpp's program again", p.Path, ErrCannotTap)
	}
	return p, nil
}

// ProgramNames lists the programs of the installation, sorted.
func ProgramNames() ([]string, error) {
	in, err := llama.Installed()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(in.Bin)
	if err != nil {
		return nil, fmt.Errorf("list llama.cpp's programs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if path := filepath.Join(in.Bin, e.Name()); isProgram(path) && !isSelf(path) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// ProgramDir is the folder of llama.cpp's own programs.
func ProgramDir() string {
	in, _ := llama.Installed()
	return in.Bin
}

// isProgram reports whether a file is a program of llama.cpp. The folder may be shared, such as /usr/bin: then the name
// decides, or that the file needs llama.cpp's libraries.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false
	}
	if strings.HasPrefix(filepath.Base(path), "llama-") {
		return true
	}
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	needed, err := file.ImportedLibraries()
	return err == nil && slices.ContainsFunc(needed, func(library string) bool {
		return strings.HasPrefix(library, "libllama.so") || strings.HasPrefix(library, "libggml.so") ||
			strings.HasPrefix(library, "libggml-base.so")
	})
}

// isSelf reports whether a path leads to this process's own binary.
func isSelf(path string) bool {
	other, err := os.Stat(path)
	if err != nil {
		return false
	}
	self, _ := llama.Self()
	binary, _ := llama.Beside("llamatap") // what a launcher starts
	for _, path := range []string{self, binary} {
		if own, err := os.Stat(path); err == nil && os.SameFile(own, other) {
			return true
		}
	}
	return false
}

// Starter is a path that starts the program as it is, with its libraries and backends.
func (p Program) Starter() string {
	if start := filepath.Join(p.in.Bin, "..", "..", "run", p.Name); isFile(start) {
		return start
	}
	return p.Path
}

// loader is the dynamic loader that starts the program, "" for the machine's.
func (p Program) loader() string {
	if own := besideBackends(p.in); own != "" {
		return own
	}
	return p.in.Loader
}

// ByLoader reports whether a dynamic loader that comes with the program starts it: /proc/self/exe is the loader then.
func (p Program) ByLoader() bool { return p.loader() != "" }

// besideBackends is the copy of the loader that a fetched llama.cpp has next to its CPU backends, because llama.cpp
// looks for them where the running file is; "" where there is none.
func besideBackends(in llama.Installation) string {
	if path := filepath.Join(in.Bin, "..", "..", "run", "ld.so"); isFile(path) {
		return path
	}
	return ""
}

// Plain is how exec(2) starts the program without the tap: file, arguments from argv0 on, environment.
func (p Program) Plain(argv0 string, args []string) (path string, argv, env []string) {
	if loader := p.loader(); loader != "" {
		argv = []string{loader, "--library-path", p.in.LibPath, "--argv0", argv0, p.Path}
		return loader, append(argv, args...), os.Environ()
	}
	return p.Path, append([]string{argv0}, args...), p.environment()
}

// Command prepares the program with the tap preloaded. It calls itself argv0; its standard streams are this process's.
func (p Program) Command(argv0 string, args []string) (*exec.Cmd, error) {
	tap, err := tapLibrary()
	if err != nil {
		return nil, err
	}
	if err := checkProgram(p.Path); err != nil {
		return nil, err
	}
	cmd := exec.Command(p.Path)
	if loader := p.loader(); loader != "" {
		cmd.Path = loader
		tap, folder := llama.Preloaded(tap)
		libraries := p.in.LibPath
		if folder != "" {
			libraries += ":" + folder
		}
		cmd.Args = append([]string{loader, "--preload", tap, "--library-path", libraries, "--argv0", argv0, p.Path},
			args...)
	} else {
		cmd.Args = append([]string{argv0}, args...)
		cmd.Env = llama.Preload(p.environment(), tap)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}

// environment is this process's, with the installation's libraries where the loader would not look for them by itself.
func (p Program) environment() []string {
	env := os.Environ()
	for _, system := range []string{"/lib", "/usr/lib"} {
		if p.in.LibPath == "" || p.in.LibPath == system || strings.HasPrefix(p.in.LibPath, system+"/") ||
			p.in.LibPath == system+"64" {
			return env
		}
	}
	return llama.AddLibraryPath(env, p.in.LibPath)
}
