package runner

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The reasons for which a program is not started. A shell's exit statuses for them are 127 and 126.
var (
	// ErrNotFound occurs when there is no such program.
	ErrNotFound = errors.New("not found")
	// ErrCannotRun occurs when there is such a file, and the kernel would not run it.
	ErrCannotRun = errors.New("cannot be run")
	// ErrCannotTap occurs when a program runs, and a preloaded object cannot get into it.
	ErrCannotTap = errors.New("cannot be tapped")
)

// lookUp looks a program up as a shell does.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return "", fmt.Errorf("program %q: %w: it lies in the working folder, which PATH names; write ./%s", name,
			ErrCannotRun, name)
	case errors.Is(err, fs.ErrPermission), isFile(name) && strings.Contains(name, "/"):
		return "", fmt.Errorf("program %q: %w: it is not an executable file; chmod +x makes it one", name, ErrCannotRun)
	case isFolder(name) && strings.Contains(name, "/"):
		return "", fmt.Errorf("program %q: %w: it is a folder", name, ErrCannotRun)
	}
	return "", fmt.Errorf("program %q: %w; give its path, or the name of one of llama.cpp's own programs", name,
		ErrNotFound)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// checkProgram refuses what the kernel would not run and what a preloaded object cannot get into. Of a script, its
// interpreter is checked.
func checkProgram(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // executable and not readable: let the kernel decide
	}
	if err != nil {
		return fmt.Errorf("program %s: %w: %w", path, ErrCannotRun, err)
	}
	defer file.Close()
	start := make([]byte, 256)
	n, _ := io.ReadFull(file, start)
	if line, ok := bytes.CutPrefix(start[:n], []byte("#!")); ok {
		return checkScript(path, line)
	}
	info, err := file.Stat()
	if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return fmt.Errorf("program %s: %w: it is setuid or setgid, and the loader preloads nothing into such a "+
			"program; tap an own copy of it", path, ErrCannotTap)
	}
	object, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("program %s: %w: it is neither an ELF program nor a script with a #! line", path,
			ErrCannotRun)
	}
	if reason := whyNot(object, filepath.Base(path)); reason != nil {
		return fmt.Errorf("program %s: %w", path, reason)
	}
	return nil
}

// checkScript checks the interpreter that the first line of a script names.
func checkScript(path string, line []byte) error {
	words := strings.Fields(string(bytes.SplitN(line, []byte("\n"), 2)[0]))
	if len(words) == 0 {
		return fmt.Errorf("program %s: %w: its #! line names no interpreter", path, ErrCannotRun)
	}
	if !isFile(words[0]) {
		return fmt.Errorf("program %s: %w: its interpreter %s is not there", path, ErrCannotRun, words[0])
	}
	if object, err := elf.Open(words[0]); err == nil {
		defer object.Close()
		if reason := whyNot(object, filepath.Base(words[0])); reason != nil {
			return fmt.Errorf("program %s, interpreter %s: %w", path, words[0], reason)
		}
	}
	return nil
}

// machines are the architectures that llamatap records on, by Go's name.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// whyNot reports why the tap cannot be preloaded into a program; nil if it can.
func whyNot(object *elf.File, name string) error {
	if own, ok := machines[runtime.GOARCH]; ok && (object.Machine != own || object.Class != elf.ELFCLASS64) {
		return fmt.Errorf("%w: it is for %s (%s), and this machine and the tap are %s; take a build for this machine",
			ErrCannotRun,
			architecture(object.Machine), object.Class, architecture(own))
	}
	if object.Type != elf.ET_EXEC && object.Type != elf.ET_DYN {
		return fmt.Errorf("%w: it is an ELF file, and no program", ErrCannotRun)
	}
	loader := interpreter(object)
	switch {
	case loader == "" && strings.HasPrefix(name, "ld-linux"):
		return nil // a loader, which takes LD_PRELOAD for the program that it is given
	case loader == "":
		return fmt.Errorf("%w: it is statically linked; use a build with shared libraries (-DBUILD_SHARED_LIBS=ON)",
			ErrCannotTap)
	case strings.HasPrefix(filepath.Base(loader), "ld-musl"):
		return fmt.Errorf("%w: it is linked with musl, and the tap with glibc; use a build for glibc", ErrCannotTap)
	case hasLlama(object):
		return fmt.Errorf("%w: llama.cpp is linked into it statically; use a build with shared libraries "+
			"(-DBUILD_SHARED_LIBS=ON)", ErrCannotTap)
	}
	return nil
}

// architecture names a machine as uname does.
func architecture(m elf.Machine) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
}

// interpreter is the loader that a program asks for; empty for a static one.
func interpreter(object *elf.File) string {
	for _, p := range object.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if err != nil {
				return ""
			}
			return strings.TrimRight(string(text), "\x00")
		}
	}
	return ""
}

// hasLlama reports whether llama.cpp is linked into the program statically. A program that only interposes its
// functions, as llamatap does, needs the library too.
func hasLlama(object *elf.File) bool {
	libraries, err := object.ImportedLibraries()
	if err != nil {
		return false
	}
	for _, name := range libraries {
		if strings.HasPrefix(name, "libllama") || strings.HasPrefix(name, "libggml") {
			return false
		}
	}
	symbols, err := object.Symbols()
	if err != nil {
		return false // stripped: whoever loads it will see
	}
	for _, s := range symbols {
		if s.Name == "llama_decode" && s.Section != elf.SHN_UNDEF {
			return true
		}
	}
	return false
}
