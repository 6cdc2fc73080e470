package mrm

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// node is as much of JSON Schema (draft 2020-12) as a configuration needs.
type node struct {
	Schema      string           `json:"$schema,omitempty"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Type        any              `json:"type,omitempty"` // a name, or a list of them
	Default     any              `json:"default,omitempty"`
	Enum        []string         `json:"enum,omitempty"`
	Pattern     string           `json:"pattern,omitempty"`
	Minimum     *json.Number     `json:"minimum,omitempty"`
	Maximum     *json.Number     `json:"maximum,omitempty"`
	AnyOf       []*node          `json:"anyOf,omitempty"`
	Items       *node            `json:"items,omitempty"`
	MinItems    int              `json:"minItems,omitempty"`
	Properties  map[string]*node `json:"properties,omitempty"`
	Required    []string         `json:"required,omitempty"`
	Additional  *bool            `json:"additionalProperties,omitempty"`
}

// Schema is the JSON Schema of a configuration, for editors that complete and check YAML by one. What keys say
// together is not in it.
func Schema() []byte {
	root := structSchema(reflect.TypeFor[Config]())
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", "an experiment of llamatap mrm"
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		panic(err) // of a constant
	}
	return text.Bytes()
}

func structSchema(t reflect.Type) *node {
	n := &node{Type: "object", Properties: map[string]*node{}, Additional: new(bool)}
	keys, byKey := fields(t)
	var short *node
	for _, key := range keys {
		f := byKey[key]
		n.Properties[key] = fieldSchema(f.Type, f.Tag)
		if f.Tag.Get("required") != "" {
			n.Required = append(n.Required, key)
		}
		if f.Tag.Get("scalar") != "" {
			short = plainSchema(f.Type.Kind(), f.Tag)
			short.Description = f.Tag.Get("doc")
		}
	}
	if short != nil {
		return &node{AnyOf: []*node{short, n}}
	}
	return n
}

func fieldSchema(t reflect.Type, tag reflect.StructTag) *node {
	var n *node
	switch t.Kind() {
	case reflect.Struct:
		n = structSchema(t)
	case reflect.Slice:
		var one *node
		if t.Elem().Kind() == reflect.Struct {
			one = structSchema(t.Elem())
		} else {
			one = plainSchema(t.Elem().Kind(), tag)
		}
		n = &node{AnyOf: []*node{one, {Type: "array", Items: one, MinItems: 1}}}
	default:
		n = plainSchema(t.Kind(), tag)
	}
	n.Description = tag.Get("doc")
	if def, ok := tag.Lookup("default"); ok {
		n.Default = typed(t, def)
	}
	return n
}

// plainSchema is that of a plain value.
func plainSchema(kind reflect.Kind, tag reflect.StructTag) *node {
	n := &node{Minimum: limit(tag, "min"), Maximum: limit(tag, "max"), Pattern: tag.Get("pattern")}
	switch kind {
	case reflect.Int64:
		n.Type = "integer"
	case reflect.Float64:
		n.Type = "number"
	default:
		n.Type = []string{"string", "number", "boolean"} // a name such as 7 or on is a text all the same
		if enum := tag.Get("enum"); enum != "" && tag.Get("pair") == "" {
			n.Type, n.Enum = "string", strings.Split(enum, "|")
		} else if enum != "" {
			n.Type, n.Pattern = "string", "^("+enum+")(/("+enum+"))?$"
		}
	}
	return n
}

func limit(tag reflect.StructTag, which string) *json.Number {
	text, ok := tag.Lookup(which)
	if !ok {
		return nil
	}
	n := json.Number(text)
	return &n
}

// typed is a default as a value of JSON.
func typed(t reflect.Type, def string) any {
	switch t.Kind() {
	case reflect.Int64, reflect.Float64:
		return json.Number(def)
	case reflect.Slice:
		if words := strings.Split(def, ","); len(words) > 1 {
			all := make([]any, len(words))
			for i, word := range words {
				all[i] = typed(t.Elem(), word)
			}
			return all
		}
		return typed(t.Elem(), def)
	}
	return def
}
