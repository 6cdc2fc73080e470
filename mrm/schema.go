package mrm

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// node is a JSON Schema (draft 2020-12), as far as a configuration needs one.
type node map[string]any

// Schema is the JSON Schema of a configuration, for editors that complete and check YAML by one. It does not contain
// conditions between keys.
func Schema() []byte {
	root := structSchema(reflect.TypeFor[Config]())
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "an experiment of llamatap mrm"
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		panic(err) // of a constant
	}
	return text.Bytes()
}

func structSchema(t reflect.Type) node {
	properties, required := node{}, []string{}
	keys, byKey := fields(t)
	var short node // of a value that stands for the whole mapping
	for _, key := range keys {
		f := byKey[key]
		properties[key] = fieldSchema(f.Type, f.Tag)
		if f.Tag.Get("required") != "" {
			required = append(required, key)
		}
		if f.Tag.Get("scalar") != "" {
			short = plainSchema(f.Type.Kind(), f.Tag)
			short["description"] = f.Tag.Get("doc")
		}
	}
	n := node{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		n["required"] = required
	}
	if short != nil {
		return node{"anyOf": []node{short, n}}
	}
	return n
}

func fieldSchema(t reflect.Type, tag reflect.StructTag) node {
	var n node
	switch {
	case t.Kind() == reflect.Struct:
		n = structSchema(t)
	case t.Kind() == reflect.Slice:
		one := plainSchema(t.Elem().Kind(), tag)
		if t.Elem().Kind() == reflect.Struct {
			one = structSchema(t.Elem())
		}
		n = node{"anyOf": []node{one, {"type": "array", "items": one, "minItems": 1}}}
	default:
		n = plainSchema(t.Kind(), tag)
	}
	n["description"] = tag.Get("doc")
	if def, ok := tag.Lookup("default"); ok {
		n["default"] = typed(t, def)
	}
	return n
}

// plainSchema is that of a plain value.
func plainSchema(kind reflect.Kind, tag reflect.StructTag) node {
	n := node{}
	for name, key := range map[string]string{"min": "minimum", "max": "maximum"} {
		if limit, ok := tag.Lookup(name); ok {
			n[key] = json.Number(limit)
		}
	}
	if pattern := tag.Get("pattern"); pattern != "" {
		n["pattern"] = pattern
	}
	switch enum := tag.Get("enum"); {
	case kind == reflect.Int64:
		n["type"] = "integer"
	case kind == reflect.Float64:
		n["type"] = "number"
	case enum == "":
		n["type"] = []string{"string", "number", "boolean"} // a name such as 7 or on is a text all the same
	case tag.Get("pair") == "":
		n["type"], n["enum"] = "string", strings.Split(enum, "|")
	default:
		n["type"], n["pattern"] = "string", "^("+enum+")(/("+enum+"))?$"
	}
	return n
}

// typed is a default as a value of JSON.
func typed(t reflect.Type, def string) any {
	switch t.Kind() {
	case reflect.Int64, reflect.Float64:
		return json.Number(def)
	case reflect.Slice:
		words := strings.Split(def, ",")
		if len(words) == 1 {
			return typed(t.Elem(), def)
		}
		all := make([]any, len(words))
		for i, word := range words {
			all[i] = typed(t.Elem(), word)
		}
		return all
	}
	return def
}
