package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
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
		if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
			text = wrongType(wrong)
		}
		if t := e.GetToken(); t != nil && t.Position != nil {
			name = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
		}
	}
	return fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(text), " "))
}

// wrongType reports what was found where something else is required, and under which key.
func wrongType(e *yaml.TypeError) string {
	wanted := "a mapping of keys"
	switch e.DstType.Kind() {
	case reflect.String:
		wanted = "a text"
	case reflect.Bool:
		wanted = "true or false"
	case reflect.Float32, reflect.Float64:
		wanted = "a number, without a unit"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		wanted = "a whole number, without a unit"
	case reflect.Slice, reflect.Array:
		wanted = "a list"
	}
	t := e.Token
	if t == nil {
		return "write " + wanted
	}
	key := ""
	if colon := t.Prev; colon != nil && colon.Type == token.MappingValueType && colon.Prev != nil {
		key = colon.Prev.Value + " "
	}
	return fmt.Sprintf("%s%.40q: write %s", key, t.Value, wanted)
}
