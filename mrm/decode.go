package mrm

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/llamatap/llamatap/internal/cli"
)

// decoder puts a YAML tree into a Config by the tags of its fields, and notes where each key stands.
type decoder struct {
	problems *Problems // whose places it fills in
	ignored  *[]string // where keys that are not known go; nil: they are problems
}

func at(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// addProblem notes a problem.
func (d *decoder) addProblem(node ast.Node, remedy, cause string, args ...any) {
	d.problems.addAt(at(node.GetToken()), fmt.Sprintf(cause, args...), remedy)
}

// fields are the fields of a struct that files contain, by key.
func fields(t reflect.Type) (keys []string, byKey map[string]reflect.StructField) {
	byKey = map[string]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		if key := f.Tag.Get("yaml"); key != "" {
			keys, byKey[key] = append(keys, key), f
		}
	}
	return keys, byKey
}

// join is the path of a key below another.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// structure fills a struct from a mapping, and what the mapping lacks from the defaults.
func (d *decoder) structure(node ast.Node, path string, v reflect.Value) {
	keys, byKey := fields(v.Type())
	seen := map[string]bool{}
	for _, pair := range d.pairs(node, path) {
		key := pair.Key.GetToken()
		name := key.Value
		field, known := byKey[name]
		switch {
		case pair.Key.IsMergeKey():
			d.addProblem(pair.Key, "write the keys out", "merge keys are not read")
		case !known && d.ignored != nil:
			d.ignore(pair.Value, join(path, name))
		case !known:
			where := ""
			if path != "" {
				where = " below " + path
			}
			d.addProblem(pair.Key, nearestOf(name, keys), "unknown key %q%s", name, where)
		case seen[name]:
			d.addProblem(pair.Key, "delete one of the two", "%s stands twice", join(path, name))
		default:
			d.problems.places[join(path, name)] = at(key)
			d.value(pair.Value, join(path, name), v.FieldByIndex(field.Index), field.Tag)
		}
		seen[name] = true
	}
	for _, key := range keys {
		if !seen[key] {
			d.missing(node, join(path, key), v.FieldByIndex(byKey[key].Index), byKey[key].Tag)
		}
	}
}

// ignore notes a key that is not known, by the keys below it where there are some.
func (d *decoder) ignore(node ast.Node, path string) {
	below := pairsOf(node)
	for _, pair := range below {
		*d.ignored = append(*d.ignored, join(path, pair.Key.GetToken().Value))
	}
	if len(below) == 0 {
		*d.ignored = append(*d.ignored, path)
	}
}

func nearestOf(name string, words []string) string {
	if near := cli.Nearest(name, words); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return "use " + list(words)
}

// list writes words as people do.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// pairs are those of a mapping.
func (d *decoder) pairs(node ast.Node, path string) []*ast.MappingValueNode {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	case *ast.NullNode:
		d.addProblem(node, "write keys below it, or delete the line", "%s is empty", cmp.Or(path, "the file"))
	default:
		d.addProblem(node, "write keys with values, such as experiment: {name: first}", "%s is not a mapping",
			cmp.Or(path, "the file"))
	}
	return pairsOf(node)
}

// missing sets the default of a key that the file lacks.
func (d *decoder) missing(parent ast.Node, path string, v reflect.Value, tag reflect.StructTag) {
	switch def, ok := tag.Lookup("default"); {
	case tag.Get("required") != "":
		var where place
		if parent != nil {
			where = at(parent.GetToken())
		}
		d.problems.addAt(where, path+" is missing", "add it: "+tag.Get("doc"))
	case v.Kind() == reflect.Struct:
		d.defaults(path, v)
	case v.Kind() == reflect.Slice && ok:
		for i, word := range strings.Split(def, ",") {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			set(v.Index(i), word, tag)
		}
	case ok:
		set(v, def, tag)
	}
}

// defaults fills a struct that the file lacks.
func (d *decoder) defaults(path string, v reflect.Value) {
	keys, byKey := fields(v.Type())
	for _, key := range keys {
		d.missing(nil, join(path, key), v.FieldByIndex(byKey[key].Index), byKey[key].Tag)
	}
}

// value puts one value into a field.
func (d *decoder) value(node ast.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if _, null := node.(*ast.NullNode); null && d.ignored != nil && tag.Get("required") == "" {
		if v.Kind() == reflect.Struct {
			d.defaults(path, v)
		}
		return
	}
	if list, ok := node.(*ast.SequenceNode); ok && d.ignored != nil && len(list.Values) == 0 &&
		tag.Get("default") == "" && tag.Get("required") == "" {
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		d.list(node, path, v, tag)
	case reflect.Struct:
		if d.scalar(node, path, v) {
			return
		}
		d.structure(node, path, v)
	default:
		d.plain(node, path, v, tag)
	}
}

// list fills a list from a sequence, or from one value that is alone.
func (d *decoder) list(node ast.Node, path string, v reflect.Value, tag reflect.StructTag) {
	items := []ast.Node{node}
	sequence, ok := node.(*ast.SequenceNode)
	if ok {
		items = sequence.Values
	}
	if len(items) == 0 {
		d.addProblem(node, "write at least one value", "%s is an empty list", path)
	}
	for i, item := range items {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		below := fmt.Sprintf("%s[%d]", path, i)
		d.problems.places[below] = at(item.GetToken())
		if _, nested := item.(*ast.SequenceNode); nested {
			d.addProblem(item, "write one value per line", "%s is a list in a list", below)
			continue
		}
		d.value(item, below, v.Index(i), tag)
	}
}

// scalar puts a plain value that stands in place of a mapping into the field that is meant then.
func (d *decoder) scalar(node ast.Node, path string, v reflect.Value) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
	default:
		return false
	}
	keys, byKey := fields(v.Type())
	which := slices.IndexFunc(keys, func(key string) bool { return byKey[key].Tag.Get("scalar") != "" })
	if which < 0 {
		return false
	}
	d.defaults(path, v)
	field := byKey[keys[which]]
	d.plain(node, path, v.FieldByIndex(field.Index), field.Tag)
	return true
}

// plain puts a plain value into a field, as it is written.
func (d *decoder) plain(node ast.Node, path string, v reflect.Value, tag reflect.StructTag) {
	var word string
	switch n := node.(type) {
	case *ast.LiteralNode:
		word = n.Value.Value
	case *ast.StringNode:
		word = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		word = node.GetToken().Value
	case *ast.NullNode:
		d.addProblem(node, "write one behind the colon, or delete the line", "%s has no value", path)
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.addProblem(node, "write the value out", "%s is an anchor, an alias or a tag, which are not read", path)
		return
	default:
		d.addProblem(node, "write one plain value", "%s is not a plain value", path)
		return
	}
	if d.ignored != nil && v.Kind() == reflect.Int64 {
		word = pythonInteger(word)
	}
	if remedy := set(v, word, tag); remedy != "" {
		d.addProblem(node, remedy, "%s is %q", path, word)
	}
}

// pythonInteger writes an integer as Python's YAML and pydantic take it (4_000, 0x10, 4000.0) in decimal digits;
// anything else stays.
func pythonInteger(word string) string {
	if n, err := strconv.ParseInt(word, 0, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if f, err := strconv.ParseFloat(word, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return word
}

// set puts a word into a field. Where the tags do not allow it, it returns how the word should be written.
func set(v reflect.Value, word string, tag reflect.StructTag) (remedy string) {
	switch v.Kind() {
	case reflect.Int64:
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || !within(float64(n), tag) {
			return fmt.Sprintf("write a whole number from %s to %s", tag.Get("min"), tag.Get("max"))
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || !within(f, tag) {
			return fmt.Sprintf("write a number from %s to %s", tag.Get("min"), tag.Get("max"))
		}
		v.SetFloat(f)
	default:
		if remedy := refuseText(word, tag); remedy != "" {
			return remedy
		}
		v.SetString(word)
	}
	return ""
}

// within reports whether a number is one that the tags min and max allow. Every number has both.
func within(n float64, tag reflect.StructTag) bool {
	low, errLow := strconv.ParseFloat(tag.Get("min"), 64)
	high, errHigh := strconv.ParseFloat(tag.Get("max"), 64)
	return errLow == nil && errHigh == nil && low <= n && n <= high
}

// refuseText returns how a text should be written where the tags do not allow it.
func refuseText(word string, tag reflect.StructTag) string {
	if enum := tag.Get("enum"); enum != "" {
		parts := []string{word}
		if tag.Get("pair") != "" {
			parts = strings.SplitN(word, "/", 2)
		}
		for _, part := range parts {
			if words := strings.Split(enum, "|"); !slices.Contains(words, part) {
				return nearestOf(part, words)
			}
		}
	}
	if pattern := tag.Get("pattern"); pattern != "" && !regexp.MustCompile(pattern).MatchString(word) {
		return "write " + tag.Get("words")
	}
	if strings.ContainsRune(word, 0) {
		return "leave the zero byte out"
	}
	return ""
}
