package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/llamatap/llamatap/internal/cli"
)

// maxFileSize bounds a configuration file; a larger one is not a configuration.
const maxFileSize = 1 << 20

// loadFile reads a configuration file's settings. name is used in errors, which carry line and column.
func loadFile(name string, r io.Reader) (map[string]given, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: give a YAML file with settings", name, cli.Bare(err))
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %v: give a YAML file with settings", name, Bytes(maxFileSize))
	}
	f := fileReader{name: name, settings: make(map[string]given)}
	if err := f.read(data); err != nil {
		return nil, err
	}
	return f.settings, nil
}

// fileReader walks a YAML tree. It takes scalars as they are written, so that 0-3, 256M and 1:20 mean what they
// mean as flags.
type fileReader struct {
	name     string
	settings map[string]given
}

func (f *fileReader) read(data []byte) error {
	body, wrong := ParseYAML(data)
	if wrong != nil {
		return wrong.inFile(f.name)
	}
	if body == nil {
		return fmt.Errorf("%s is empty: write settings below the key tap:, such as tap: {preset: balanced}", f.name)
	}
	return f.eachKey(body, "settings", func(key string, at *token.Token, value ast.Node) error {
		if key != "tap" {
			return f.errorAt(at, "unknown key %q: settings belong below the key tap:", key)
		}
		return f.eachKey(value, "settings", f.setting)
	})
}

func (f *fileReader) setting(key string, at *token.Token, value ast.Node) error {
	name := strings.ReplaceAll(key, "_", "-")
	o := findOption(name)
	if o == nil || o.key() != key || o.name == "config" {
		return f.errorAt(at, "unknown setting %q: %s", key, f.remedy(key))
	}
	if _, isNull := value.(*ast.NullNode); isNull {
		return f.errorAt(at, "%s has no value: write one after the colon, or delete the line", key)
	}
	words, err := f.texts(key, value)
	if err != nil {
		return err
	}
	f.settings[o.name] = given{text: strings.Join(words, ","), where: f.position(value.GetToken())}
	return nil
}

// texts returns a scalar's text, or the texts of a list, as they are written.
func (f *fileReader) texts(key string, value ast.Node) ([]string, error) {
	list, isList := value.(*ast.SequenceNode)
	if !isList {
		word, err := f.word(key, value)
		return []string{word}, err
	}
	var words []string
	for _, item := range list.Values {
		word, err := f.word(key, item)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

func (f *fileReader) word(key string, value ast.Node) (string, error) {
	switch node := value.(type) {
	case *ast.LiteralNode:
		return strings.TrimSpace(node.Value.Value), nil
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	}
	return "", f.errorAt(value.GetToken(), "%s: write one plain value or a list of them", key)
}

// eachKey calls fn for every key of a mapping.
func (f *fileReader) eachKey(node ast.Node, want string, fn func(string, *token.Token, ast.Node) error) error {
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return f.errorAt(node.GetToken(), "expected %s below the key tap:, such as tap: {preset: balanced}", want)
	}
	seen := make(map[string]bool)
	for _, pair := range pairs {
		at := pair.Key.GetToken()
		if pair.Key.IsMergeKey() {
			return f.errorAt(at, "merge keys are not read: write the settings out")
		}
		key := at.Value
		if seen[key] {
			return f.errorAt(at, "%s is given twice: delete one", key)
		}
		seen[key] = true
		if err := fn(key, at, pair.Value); err != nil {
			return err
		}
	}
	return nil
}

func (f *fileReader) remedy(key string) string {
	var keys []string
	for i := range tapOptions {
		if tapOptions[i].name != "config" {
			keys = append(keys, tapOptions[i].key())
		}
	}
	if near := cli.Nearest(key, keys); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return "use one of " + strings.Join(keys, ", ")
}

func (f *fileReader) position(t *token.Token) string {
	if t == nil || t.Position == nil {
		return f.name
	}
	return fmt.Sprintf("%s:%d:%d", f.name, t.Position.Line, t.Position.Column)
}

func (f *fileReader) errorAt(t *token.Token, format string, args ...any) error {
	return fmt.Errorf("%s: %s", f.position(t), fmt.Sprintf(format, args...))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
