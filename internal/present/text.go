package present

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text writes lines and tables until a write fails. Err is the first error.
type Text struct {
	W   io.Writer
	Err error
}

// Line writes a formatted line.
func (t *Text) Line(format string, args ...any) {
	if t.Err == nil {
		_, t.Err = fmt.Fprintf(t.W, format+"\n", args...)
	}
}

// Table writes rows of cells in columns that are aligned right and begin with two spaces.
func (t *Text) Table(rows [][]string) {
	if t.Err == nil {
		t.Err = writeColumns(t.W, "  ", rows, func(int) bool { return true })
	}
}

// Columns writes a table as the function Table does.
func (t *Text) Columns(rows [][]string) {
	if t.Err == nil {
		t.Err = Table(t.W, rows)
	}
}

// Table writes rows of cells in columns, two spaces apart. The first row is the head: a column whose head begins with
// a space, which is not written, is aligned right.
func Table(w io.Writer, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	head, right := make([]string, len(rows[0])), make([]bool, len(rows[0]))
	for i, cell := range rows[0] {
		head[i], right[i] = strings.CutPrefix(cell, " ")
	}
	return writeColumns(w, "", append([][]string{head}, rows[1:]...), func(i int) bool { return right[i] })
}

// writeColumns writes rows in columns, each as wide as its widest cell, without spaces at the ends of lines.
func writeColumns(w io.Writer, indent string, rows [][]string, right func(column int) bool) error {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		line := indent
		for i, cell := range row {
			if i > 0 {
				line += "  "
			}
			if pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)); right(i) {
				line += pad + cell
			} else {
				line += cell + pad
			}
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}
