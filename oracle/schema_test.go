//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// eventSchema reads docs/events.schema.json once.
var eventSchema = sync.OnceValues(func() (defs map[string]schemaNode, err error) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "events.schema.json"))
	if err != nil {
		return nil, err
	}
	var all struct {
		Defs map[string]schemaNode `json:"$defs"`
	}
	return all.Defs, json.Unmarshal(text, &all)
})

// schemaNode is as much of JSON Schema as that file uses.
type schemaNode struct {
	Type       string                `json:"type"`
	Const      any                   `json:"const"`
	Enum       []any                 `json:"enum"`
	Pattern    string                `json:"pattern"`
	Minimum    *float64              `json:"minimum"`
	Items      *schemaNode           `json:"items"`
	Properties map[string]schemaNode `json:"properties"`
	Required   []string              `json:"required"`
	Additional *schemaNode           `json:"additionalProperties"`
}

// wrong is what does not fit, "" where all does.
func (s *schemaNode) wrong(at string, v any) string {
	switch {
	case s.Const != nil && v != s.Const, s.Enum != nil && !slices.Contains(s.Enum, v):
		return fmt.Sprintf("%s is %v", at, v)
	case s.Type != "" && !isType(s.Type, v):
		return fmt.Sprintf("%s is %v, want %s", at, v, s.Type)
	}
	switch v := v.(type) {
	case string:
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Sprintf("%s is %q, want %s", at, v, s.Pattern)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum {
			return fmt.Sprintf("%s is %v, least is %v", at, v, *s.Minimum)
		}
	case []any:
		for i := range v {
			if why := s.Items.wrong(fmt.Sprintf("%s[%d]", at, i), v[i]); why != "" {
				return why
			}
		}
	case map[string]any:
		return s.wrongObject(at, v)
	}
	return ""
}

func (s *schemaNode) wrongObject(at string, v map[string]any) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Sprintf("%s has no %q", at, name)
		}
	}
	for name, value := range v {
		p, ok := s.Properties[name]
		if !ok && s.Additional != nil {
			p = *s.Additional
		}
		if why := p.wrong(at+"."+name, value); why != "" {
			return why
		}
	}
	return ""
}

func isType(name string, v any) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

// checkSchema demands that a line is as docs/events.schema.json says.
func checkSchema(t *testing.T, line []byte) {
	t.Helper()
	defs, err := eventSchema()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatal(err)
	}
	name, _ := v["event"].(string)
	s, ok := defs[name]
	if !ok {
		t.Fatalf("the schema has no event %q", name)
	}
	if why := s.wrong(name, v); why != "" {
		t.Errorf("%s: %s", why, line)
	}
}

// TestSchemaRefuses shows that the check finds what is wrong.
func TestSchemaRefuses(t *testing.T) {
	defs, err := eventSchema()
	if err != nil {
		t.Fatal(err)
	}
	const head = `"timestamp":"5","unix_ns":5,"mono_ns":5,"session_id":"s","source":"measured"`
	for line, fits := range map[string]bool{
		`{"event":"loss",` + head + `,"kind":"phase","cause":"rate","count":1}`:   true,
		`{"event":"loss",` + head + `,"kind":"phase","cause":"rate","count":-1}`:  false,
		`{"event":"loss",` + head + `,"kind":"phase","cause":"rate","count":1.5}`: false,
		`{"event":"loss",` + head + `,"kind":"phase","cause":"rate"}`:             false,
		`{"event":"phase",` + head + `,"kind":"phase","cause":"rate","count":1}`:  false,
		`{"event":"loss",` + head + `,"kind":5,"cause":"rate","count":1}`:         false,
		`{"event":"loss",` + head[13:] + `,"kind":"","cause":"rate","count":1}`:   false,
		`{"event":"level",` + head + `,"level":"VERBOSE","previous":"MINIMAL"}`:   true,
		`{"event":"level",` + head + `,"level":"all","previous":"MINIMAL"}`:       false,
	} {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil && fits {
			t.Fatal(err)
		} else if err != nil {
			continue
		}
		s := defs["loss"]
		if v["event"] == "level" {
			s = defs["level"]
		}
		if why := s.wrong("event", v); (why == "") != fits {
			t.Errorf("%s: %q", line, why)
		}
	}
}

// TestProgramsFitTheSchema: lines that programs write through the C header are as the schema says.
func TestProgramsFitTheSchema(t *testing.T) {
	testenv.NeedLlama(t)
	_, lines := instrumented(t)
	for _, line := range lines {
		checkSchema(t, line)
	}
}
