package resource

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated parts of docs/ anew")

// describe says what a key means, in one line.
func describe(path string) string {
	k := keys[path]
	text := strings.NewReplacer("`", "", "*", "", `\`, "").Replace(k.text)
	if k.unit != "" {
		text += "; unit: " + k.unit
	}
	return text
}

// schemaOf is the JSON Schema of a Go type. path is the key before those of an object within an event.
func schemaOf(of reflect.Type, path string) map[string]any {
	switch of {
	case reflect.TypeFor[Timestamp]():
		return map[string]any{"type": "string", "pattern": "^[0-9]+$"}
	case reflect.TypeFor[Kind]():
		return map[string]any{"type": "string"}
	case reflect.TypeFor[Level]():
		return map[string]any{"enum": levelNames.All}
	case reflect.TypeFor[Source]():
		return map[string]any{"enum": sourceNames.All}
	case reflect.TypeFor[TimeSource]():
		return map[string]any{"enum": timeSourceNames.All}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOf(of.Elem(), path)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(of.Elem(), path)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(of.Elem(), path)}
	case reflect.Struct:
		return objectOf(of, path)
	}
	s := map[string]any{"type": "integer"}
	if of.Kind() >= reflect.Uint && of.Kind() <= reflect.Uint64 {
		s["minimum"] = 0
	}
	return s
}

// byTap are keys that the tap always provides and that a program, through the C header, does not know: the schema does
// not demand them.
var byTap = map[string]bool{
	"exec": true, "graph": true, "op_seq": true, "phase": true, "node_count": true, "time_source": true,
	"buffer_id": true, "mapped": true,
	"from_layer_id": true, "tensors": true, "data_bytes": true, "data_size_mb": true, "cells": true, "cache": true,
	"phases": true,
	"graphs": true, "tokens": true,
}

func objectOf(of reflect.Type, path string) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(of) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" {
			continue
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		s := schemaOf(f.Type, at)
		s["description"] = describe(at)
		if properties[name] = s; rest != "omitempty" && !byTap[name] {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// schema is docs/events.schema.json.
func schema() map[string]any {
	defs, any0 := map[string]any{}, []any{}
	for k := range kindCount {
		s := objectOf(reflect.TypeOf(New(k)).Elem(), "")
		s["properties"].(map[string]any)["event"] = map[string]any{"const": k.String()}
		defs[k.String()] = s
		any0 = append(any0, map[string]any{"$ref": "#/$defs/" + k.String()})
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A line of resource.jsonl",
		"description": fmt.Sprintf("Resource events of llamatap, version %d. Made of the structs in resource/; "+
			"docs/EVENTS.md explains them. A key that is not known is absent.", Version),
		"oneOf": any0, "$defs": defs,
	}
}

// TestSchema compares docs/events.schema.json with the structs.
func TestSchema(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(schema()); err != nil {
		t.Fatal(err)
	}
	const path = "../docs/events.schema.json"
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not that of the structs (%v): go test ./resource -update", path, err)
	}
}

// TestKeysAreExplained demands that the table has every key of every event, and no other.
func TestKeysAreExplained(t *testing.T) {
	used := map[string]bool{}
	var walk func(s map[string]any, path string)
	walk = func(s map[string]any, path string) {
		if inner, ok := s["additionalProperties"].(map[string]any); ok {
			s = inner
		}
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if used[at] = true; keys[at].text == "" {
				t.Errorf("nobody says what %q means", at)
			}
			walk(p.(map[string]any), at)
		}
	}
	for k := range kindCount {
		walk(objectOf(reflect.TypeOf(New(k)).Elem(), ""), "")
	}
	for name := range keys {
		if !used[name] {
			t.Errorf("no event has %q", name)
		}
	}
}

// between are the generated parts of docs/EVENTS.md that this package knows.
func between() map[string]string {
	var levels, table, formula strings.Builder
	levels.WriteString("| event | MINIMAL | DETAILED | VERBOSE |\n|---|---|---|---|\n")
	for k := range kindCount {
		fmt.Fprintf(&levels, "| `%v` |", k)
		for _, l := range []Level{Minimal, Detailed, Verbose} {
			fmt.Fprintf(&levels, " %s |", shown(l, k))
		}
		levels.WriteString("\n")
	}
	table.WriteString("| key | unit | source | what |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		k := keys[name]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, k.unit, k.source, k.text)
	}
	formula.WriteString("| op | FLOPs |\n|---|---|\n")
	by := map[string][]string{}
	for name, f := range Formulas() {
		by[f.Text] = append(by[f.Text], name)
	}
	var rows []string
	for text, names := range by {
		slices.Sort(names)
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", strings.Join(names, ", "), text))
	}
	slices.Sort(rows)
	formula.WriteString(strings.Join(rows, ""))
	return map[string]string{"levels": levels.String(), "keys": table.String(), "formulas": formula.String()}
}

func shown(l Level, k Kind) string {
	switch {
	case !l.Includes(k):
		return ""
	case k == KindAllocation && l == Minimal:
		return "from 1 MiB on"
	case k == KindCompute:
		return [...]string{"one per graph, and per product of matrices",
			"one per component of a layer, and per product, activation and norm", "one per op"}[l]
	}
	return "yes"
}

// TestGuide compares the generated tables of docs/EVENTS.md.
func TestGuide(t *testing.T) {
	const path = "../docs/EVENTS.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for name, want := range between() {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		before, rest, ok1 := strings.Cut(doc, begin)
		got, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s has no %s … %s", path, begin, end)
		}
		if got != want && !*update {
			t.Errorf("%s: the part %q is not what the program says: go test ./resource -update", path, name)
		}
		doc = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
