package config

import (
	"fmt"
	"reflect"
)

// Differences lists where two runs have other settings, a sentence each; what changes nothing of what a model
// computes is left out.
func (r *Run) Differences(o *Run) []string {
	return differences("", reflect.ValueOf(*r), reflect.ValueOf(*o))
}

// harmless are fields that do not change what a model computes.
var harmless = map[string]bool{"Verbose": true, "ResultsFile": true}

func differences(prefix string, a, b reflect.Value) []string {
	var found []string
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || harmless[f.Name] {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			found = append(found, differences(prefix+f.Name+".", a.Field(i), b.Field(i))...)
			continue
		}
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			found = append(found, fmt.Sprintf("%s%s was %s and is %s", prefix, f.Name, clip(x), clip(y)))
		}
	}
	return found
}

// clip is a value short enough for a line.
func clip(v any) string {
	text := fmt.Sprintf("%+v", v)
	if s, ok := v.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	if r := []rune(text); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return text
}
