package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// UnmarshalYAML reads a document into a value; a key that the value lacks is an error, and an empty document none.
// Errors are one line that begins with the name, and with line and column where they are known. It recovers from
// panics of goccy/go-yaml, which dereferences nil for a list that is a tag alone.
func UnmarshalYAML(name string, data []byte, to any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: not valid YAML, such as a tag without a value (%v)", name, p)
		}
	}()
	if err := CheckYAML(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	err = yaml.UnmarshalWithOptions(data, to, yaml.Strict())
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	text := yaml.FormatError(err, false, false)
	var e interface {
		error
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &e) {
		text = e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			name = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
		}
	}
	return fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(text), " "))
}
