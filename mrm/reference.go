package mrm

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
)

// Reference writes a configuration with every key, its default and what it means, as YAML. A key without default is
// a comment.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString("# Every key of an experiment of llamatap mrm, with its default. Only workload.prompts has none.\n")
	reference(&b, reflect.TypeFor[Config](), "")
	return b.Bytes()
}

func reference(b *bytes.Buffer, t reflect.Type, indent string) {
	keys, byKey := fields(t)
	for _, key := range keys {
		f := byKey[key]
		if indent == "" {
			b.WriteByte('\n')
		}
		b.WriteString(indent + "# " + f.Tag.Get("doc") + allowed(f.Tag) + "\n")
		def, ok := f.Tag.Lookup("default")
		switch {
		case f.Type.Kind() == reflect.Struct:
			b.WriteString(indent + key + ":\n")
			reference(b, f.Type, indent+"  ")
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			b.WriteString(indent + key + ":\n")
			if key == "prompts" {
				b.WriteString(indent + "  - text: \"func main() {\"\n")
			} else {
				b.WriteString(indent + "  - id: gopher-6m\n")
			}
			below, belowByKey := fields(f.Type.Elem())
			for _, key := range below { // as comments
				b.WriteString(indent + "    # " + key + ": " + belowByKey[key].Tag.Get("doc") + "\n")
			}
		case f.Type.Kind() == reflect.Slice && !ok:
			b.WriteString(indent + "# " + key + ": " + f.Tag.Get("example") + "\n")
		case f.Type.Kind() == reflect.Slice:
			b.WriteString(indent + key + ": [" + strings.ReplaceAll(def, ",", ", ") + "]\n")
		case ok:
			b.WriteString(indent + key + ": " + plain(f.Type, def) + "\n")
		}
	}
}

// plain is a default as YAML.
func plain(t reflect.Type, def string) string {
	if t.Kind() == reflect.String && strings.ContainsAny(def, ":#{}[],&*!|>'\"%@` ") {
		return strconv.Quote(def)
	}
	return def
}

// allowed says what values there are, behind a key's meaning.
func allowed(tag reflect.StructTag) string {
	if enum := tag.Get("enum"); enum != "" {
		return " (" + strings.ReplaceAll(enum, "|", ", ") + ")"
	}
	return ""
}
