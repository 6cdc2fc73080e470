package config

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/llamatap/llamatap/internal/cli"
)

// YAMLError says where a file is not YAML that can be read.
type YAMLError struct {
	Line, Column  int // from 1; 0: the file as a whole
	Cause, Remedy string
}

// syntaxError is what goccy/go-yaml's errors hold beside their many-line text.
type syntaxError interface {
	error
	GetMessage() string
	GetToken() *token.Token
}

// ParseYAML parses a file of one document in UTF-8. body is nil where it is empty.
func ParseYAML(data []byte) (body ast.Node, wrong *YAMLError) {
	if bad := cli.InvalidUTF8(string(data)); bad >= 0 {
		return nil, &YAMLError{
			Line: 1 + bytes.Count(data[:bad], []byte{'\n'}), Column: bad - bytes.LastIndexByte(data[:bad], '\n'),
			Cause: fmt.Sprintf("byte 0x%02x is not valid UTF-8", data[bad]), Remedy: "write the file in UTF-8",
		}
	}
	if err := cli.CheckYAML(data); err != nil {
		return nil, yamlError(nil, err.Error(), "")
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax syntaxError
		if errors.As(err, &syntax) {
			return nil, yamlError(syntax.GetToken(), "not valid YAML: "+firstLine(syntax.GetMessage()), "")
		}
		return nil, yamlError(nil, "not valid YAML: "+firstLine(err.Error()), "")
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, yamlError(doc.Start, "a second document begins here", "put everything into one")
		}
		body = doc.Body
	}
	return body, nil
}

func yamlError(at *token.Token, cause, remedy string) *YAMLError {
	e := &YAMLError{Cause: cause, Remedy: remedy}
	if at != nil && at.Position != nil {
		e.Line, e.Column = at.Position.Line, at.Position.Column
	}
	return e
}

// inFile returns the error as one line, of the file of that name.
func (e *YAMLError) inFile(name string) error {
	text := e.Cause
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	if e.Line == 0 {
		return fmt.Errorf("%s: %s", name, text)
	}
	return fmt.Errorf("%s:%d:%d: %s", name, e.Line, e.Column, text)
}
