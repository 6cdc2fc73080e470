package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Formats are the names of the forms, as -o takes them.
var Formats = []string{"csv", "json", "jsonl", "md", "sql"}

// WriteRows writes rows in a form of Formats.
func WriteRows(out io.Writer, format string, rows []Row) error {
	var text strings.Builder
	switch format {
	case "csv":
		writeCSV(&text, rows)
	case "json":
		if err := writeJSON(&text, rows); err != nil {
			return err
		}
	case "jsonl":
		for i := range rows {
			line, err := object(&rows[i], ", ", "")
			if err != nil {
				return err
			}
			text.WriteString("{" + line + "}\n")
		}
	case "md":
		writeMarkdown(&text, rows)
	case "sql":
		writeSQL(&text, rows)
	default:
		return fmt.Errorf("unknown form %q: take %s", format, strings.Join(Formats, ", "))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func columnNames() []string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.name
	}
	return all
}

func writeCSV(text *strings.Builder, rows []Row) {
	text.WriteString(strings.Join(columnNames(), ",") + "\n")
	for i := range rows {
		for k, c := range columns {
			if k > 0 {
				text.WriteByte(',')
			}
			if _, ok := c.valueIn(&rows[i]); ok {
				text.WriteString(`"` + strings.ReplaceAll(c.text(&rows[i]), `"`, `""`) + `"`)
			}
		}
		text.WriteByte('\n')
	}
}

func writeJSON(text *strings.Builder, rows []Row) error {
	text.WriteString("[\n")
	for i := range rows {
		lines, err := object(&rows[i], ",\n", "    ")
		if err != nil {
			return err
		}
		if i > 0 {
			text.WriteString(",\n")
		}
		text.WriteString("  {\n" + lines + "\n  }")
	}
	text.WriteString("\n]\n")
	return nil
}

// object writes a row's present fields as JSON members, each behind an indent.
func object(r *Row, separator, indent string) (string, error) {
	var members []string
	for _, c := range append(columns[:len(columns):len(columns)], lists...) {
		v, ok := c.valueIn(r)
		if !ok {
			continue
		}
		value := []byte(c.text(r))
		if c.kind != reflect.Float64 {
			var err error
			if value, err = json.Marshal(v.Interface()); err != nil {
				return "", fmt.Errorf("write %s: %w", c.name, err)
			}
		}
		members = append(members, fmt.Sprintf("%s%q: %s", indent, c.name, value))
	}
	return strings.Join(members, separator), nil
}

func writeSQL(text *strings.Builder, rows []Row) {
	text.WriteString("CREATE TABLE IF NOT EXISTS llama_bench (\n")
	for i, c := range columns {
		comma := ","
		if i == len(columns)-1 {
			comma = ""
		}
		fmt.Fprintf(text, "  %s %s%s\n", c.name, sqlType(c.kind), comma)
	}
	text.WriteString(");\n\n")
	for i := range rows {
		values := make([]string, len(columns))
		for k, c := range columns {
			values[k] = "NULL"
			if _, ok := c.valueIn(&rows[i]); ok {
				values[k] = "'" + strings.ReplaceAll(c.text(&rows[i]), "'", "''") + "'"
			}
		}
		fmt.Fprintf(text, "INSERT INTO llama_bench (%s) VALUES (%s);\n", strings.Join(columnNames(), ", "),
			strings.Join(values, ", "))
	}
}

func sqlType(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "TEXT"
	case reflect.Float64:
		return "REAL"
	}
	return "INTEGER"
}
