package mrm

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// commandEngine is the engine that is any program.
const commandEngine = "command"

// isCommand reports whether the engine is a program that nothing is known of.
func (e *Engine) isCommand() bool { return e.Type == commandEngine }

// A placeholder stands in braces in the words of engine.command, for what differs from cell to cell, or for a key
// of the configuration.
type placeholder struct {
	name string
	key  string // that it passes on; "": none is lost without it
}

var placeholders = []placeholder{
	{"model", "model"}, {"model_id", "model"}, {"prompt", "workload.prompts"}, {"prompt_file", "workload.prompts"},
	{"max_tokens", "workload.max_tokens"}, {"concurrency", "workload.concurrency"}, {"n_ctx", "engine.n_ctx"},
	{"n_batch", "engine.n_batch"}, {"n_ubatch", "engine.n_ubatch"}, {"threads", "engine.threads"},
	{"gpu_layers", "engine.gpu_layers"}, {"kv_type", "engine.kv_type"}, {"kv_type_k", "engine.kv_type"},
	{"kv_type_v", "engine.kv_type"}, {"seed", ""}, {"repetition", ""},
}

// kvTypes are those of K and of V that a value of engine.kv_type names.
func kvTypes(kvType string) (k, v string) {
	k, v, two := strings.Cut(kvType, "/")
	if !two {
		v = k
	}
	return k, v
}

// braced is a name in braces, or in double ones, of which one pair stands for itself.
var braced = regexp.MustCompile(`\{\{[a-z_]+\}\}|\{[a-z_]+\}`)

// argv are the words of a cell's command. promptFile is a file with its prompt.
func argv(c *Config, cell *Cell, promptFile string) []string {
	k, v := kvTypes(cell.KVType)
	values := map[string]any{
		"model": cell.Source.Path, "model_id": cell.ModelID, "prompt": cell.Input.Text, "prompt_file": promptFile,
		"max_tokens": cell.MaxTokens, "concurrency": cell.Concurrency, "n_ctx": cell.NCtx, "n_batch": c.Engine.NBatch,
		"n_ubatch": c.Engine.NUBatch, "threads": c.Engine.Threads, "gpu_layers": c.Engine.GPULayers,
		"kv_type": cell.KVType, "kv_type_k": k, "kv_type_v": v, "seed": cell.Seed, "repetition": cell.Repetition,
	}
	words := make([]string, len(c.Engine.Command))
	for i, word := range c.Engine.Command {
		words[i] = braced.ReplaceAllStringFunc(word, func(name string) string {
			name = name[1 : len(name)-1]
			if value, ok := values[name]; ok {
				return fmt.Sprint(value)
			}
			return name // double braces: the names of placeholders are checked
		})
	}
	words[0] = cell.Source.Program
	return words
}

// used are the names of the placeholders in the command.
func (e *Engine) used() (names []string) {
	for _, word := range e.Command {
		for _, name := range braced.FindAllString(word, -1) {
			if name = name[1 : len(name)-1]; !strings.HasPrefix(name, "{") {
				names = append(names, name)
			}
		}
	}
	return names
}

// passes reports whether the command passes a key on.
func (e *Engine) passes(key string) bool {
	used := e.used()
	return slices.ContainsFunc(placeholders, func(p placeholder) bool {
		return p.key == key && slices.Contains(used, p.name)
	})
}

// longestWord is how long a word of a command may be, of which Linux allows 128 KiB with the byte behind it.
const longestWord = 120 << 10

// noWord says why a prompt cannot be a word of the command; "": it can, or is none.
func (e *Engine) noWord(in *Input) string {
	switch {
	case !e.isCommand() || !slices.Contains(e.used(), "prompt"):
	case len(in.Text) > longestWord:
		return fmt.Sprintf("has %d bytes, more than a word of a command can have", len(in.Text))
	case strings.ContainsRune(in.Text, 0):
		return "has a zero byte, which no word of a command can have"
	}
	return ""
}

// findProgram returns the path of the program of the engine command, and what identifies its bytes. A name without a
// slash is searched in PATH; another path starts at the folder of the file.
func findProgram(c *Config) (path, fingerprint string, err error) {
	name := c.Engine.Command[0]
	if strings.Contains(name, "/") {
		if name, err = filepath.Abs(c.resolvePath(name)); err != nil {
			return "", "", err
		}
	}
	if path, err = exec.LookPath(name); err != nil {
		return "", "", fmt.Errorf("the program %s: %w", name, withoutPath(err))
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	fingerprint, _, err = fingerprintOf(path)
	return path, fingerprint, err
}

// commandSource is a model of a program's: a file or folder of any kind, or nothing but a name.
func commandSource(c *Config, m Model) (*Source, error) {
	program, fingerprint, err := findProgram(c)
	if err != nil {
		return nil, err
	}
	s := &Source{ID: m.ID, SHA256: m.SHA256, Program: program, Fingerprint: fingerprint}
	if m.Path != "" {
		if s.Path, err = filepath.Abs(c.resolvePath(m.Path)); err != nil {
			return nil, err
		}
		var sum string
		if sum, s.Bytes, err = fingerprintOf(s.Path); err != nil {
			return nil, fmt.Errorf("the model %w", err)
		}
		s.Fingerprint += " " + sum
	}
	if s.ID == "" {
		name := program
		if s.Path != "" {
			name = s.Path
		}
		s.ID = rundir.ModelID(strings.TrimSuffix(filepath.Base(name), ".gguf"), "")
	}
	return s, nil
}

// fingerprintOf identifies the bytes of a file, or the files of a folder by their names and sizes.
func fingerprintOf(path string) (sum string, bytes int64, err error) {
	named, list := path, strings.Builder{}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		bytes += info.Size()
		rel, _ := filepath.Rel(path, name)
		fmt.Fprintf(&list, "%d %s\n", info.Size(), rel)
		return nil
	})
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", named, withoutPath(err))
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		file, err := os.Open(path)
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", named, withoutPath(err))
		}
		defer file.Close()
		sum, err = gguf.Fingerprint(file, info.Size())
		return sum, info.Size(), err
	}
	text := strings.NewReader(list.String())
	sum, err = gguf.Fingerprint(text, text.Size())
	return sum, bytes, err
}
