package mrm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/cli"
)

// Source is a model whose file has been looked at: its header alone, not its weights.
type Source struct {
	ID          string
	Path        string // absolute; "" is the embedded model
	SHA256      string // that the file is said to have; ""
	Fingerprint string // of header and samples of the data; of the program too, where the engine is one
	Program     string // of the engine command: its absolute path
	Bytes       int64  // of the file, all its parts
	File        *gguf.File
	Identity    gguf.Identity
}

// Sources looks at the models. What cannot be read is a [*Problems].
func (c *Config) Sources() ([]*Source, error) {
	problems := c.problems()
	sources := make([]*Source, len(c.Models))
	ids := map[string]bool{}
	if c.Engine.isCommand() {
		if _, _, err := findProgram(c); err != nil {
			problems.add(err.Error(), "give the path of a program, from the folder of this file, or a name that is "+
				"in PATH",
				"engine.command[0]", "engine.command")
			return nil, problems.error()
		}
	}
	for i, m := range c.Models {
		where := fmt.Sprintf("model[%d]", i)
		s, err := c.open(m)
		if err != nil {
			from := ", from the folder of this file"
			if filepath.IsAbs(m.Path) {
				from = ""
			}
			problems.add(err.Error(), "give the path of a GGUF file"+from, where+".path", where)
			continue
		}
		if ids[s.ID] {
			problems.add("two models are called "+s.ID, "give each an id of its own", where+".id", where)
		}
		ids[s.ID], sources[i] = true, s
	}
	return sources, problems.error()
}

// open looks at one model.
func (c *Config) open(m Model) (*Source, error) {
	if c.Engine.isCommand() {
		return commandSource(c, m)
	}
	if m.Path == "" {
		return describe(m, "", bytes.NewReader(llamatap.DefaultModel), int64(len(llamatap.DefaultModel)))
	}
	path, err := filepath.Abs(c.resolvePath(m.Path))
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the model %s: %w", path, withoutPath(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("the model %s: %w", path, err)
	}
	return describe(m, path, file, info.Size())
}

// withoutPath returns an error without its path.
func withoutPath(err error) error {
	var program *exec.Error
	if errors.As(err, &program) {
		err = program.Err
	}
	return cli.Bare(err)
}

func describe(m Model, path string, r io.ReaderAt, size int64) (*Source, error) {
	file, err := gguf.Read(r, size)
	if err != nil {
		return nil, fmt.Errorf("the model %s: %s", path, firstLine(err))
	}
	s := &Source{Path: path, SHA256: m.SHA256, File: file, Bytes: size, Identity: gguf.Identify(file, path)}
	if s.Fingerprint, err = gguf.Fingerprint(r, size); err != nil {
		return nil, fmt.Errorf("the model %s: %w", path, err)
	}
	s.ID = m.ID
	if s.ID == "" {
		s.ID = s.Identity.ID()
	}
	return s, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
