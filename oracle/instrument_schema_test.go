//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// tapAlone are keys that the schema requires of the tap and that a program cannot know: the graph that runs, and
// where its tensors lie.
var tapAlone = []string{
	"exec", "graph", "op_seq", "node_count", "phase", "phases", "time_source", "buffer_id", "mapped", "cache", "cells",
	"from_layer_id",
	"tensors", "data_bytes", "data_size_mb", "graphs", "tokens",
}

// obey describes how a value breaks a JSON Schema, "" where it does not. It knows the words that
// docs/events.schema.json uses; missing are required keys that may be missing.
func obey(schema map[string]any, value any, missing []string) string {
	for word, rule := range schema {
		switch word {
		case "type":
			if is := typeOf(value); is != rule && (is != "integer" || rule != "number") {
				return fmt.Sprintf("%v is no %v", value, rule)
			}
		case "const":
			if value != rule {
				return fmt.Sprintf("%v is not %v", value, rule)
			}
		case "enum":
			if !slices.Contains(rule.([]any), value) {
				return fmt.Sprintf("%v is none of %v", value, rule)
			}
		case "pattern":
			if text, ok := value.(string); !ok || !regexp.MustCompile(rule.(string)).MatchString(text) {
				return fmt.Sprintf("%v does not match %v", value, rule)
			}
		case "minimum":
			if n, ok := value.(json.Number); ok {
				if f, _ := n.Float64(); f < rule.(float64) {
					return fmt.Sprintf("%v is less than %v", value, rule)
				}
			}
		case "items":
			for _, item := range value.([]any) {
				if wrong := obey(rule.(map[string]any), item, missing); wrong != "" {
					return wrong
				}
			}
		case "required":
			for _, key := range rule.([]any) {
				if _, ok := value.(map[string]any)[key.(string)]; !ok && !slices.Contains(missing, key.(string)) {
					return fmt.Sprintf("%v is missing", key)
				}
			}
		case "properties", "additionalProperties":
			if wrong := obeyKeys(schema, value.(map[string]any), missing); wrong != "" {
				return wrong
			}
		case "description":
		default:
			return "schema has a word that this test does not know: " + word
		}
	}
	return ""
}

func obeyKeys(schema, object map[string]any, missing []string) string {
	properties, _ := schema["properties"].(map[string]any)
	others, _ := schema["additionalProperties"].(map[string]any)
	for key, value := range object {
		rule, ok := properties[key].(map[string]any)
		if !ok {
			rule = others
		}
		if wrong := obey(rule, value, missing); wrong != "" {
			return key + ": " + wrong
		}
	}
	return ""
}

func typeOf(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return "integer"
		}
		return "number"
	}
	return "null"
}

// TestInstrumentSchema: the example's lines obey docs/events.schema.json, but for what only the tap can know.
func TestInstrumentSchema(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "events.schema.json"))
	var schema struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err == nil {
		err = json.Unmarshal(b, &schema)
	}
	if err != nil || len(schema.Defs) < 20 {
		t.Fatalf("%d definitions: %v", len(schema.Defs), err)
	}
	_, lines := instrumented(t)
	for _, line := range lines {
		event := decodeNumbers(t, line)
		rules := schema.Defs[event["event"].(string)]
		if wrong := obey(rules, event, tapAlone); rules == nil || wrong != "" {
			t.Errorf("%s: %s", wrong, line)
		}
		event["source"] = "guessed"
		if wrong := obey(rules, event, tapAlone); !strings.HasPrefix(wrong, "source: ") {
			t.Errorf("a source that there is not: %q", wrong)
		}
	}
}

// decodeNumbers decodes a line with its numbers as they are written.
func decodeNumbers(t *testing.T, line []byte) (object map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}
