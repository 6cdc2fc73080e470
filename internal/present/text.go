package present

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Text writes lines and tables until a write fails. Err is the first error.
type Text struct {
	W   io.Writer
	Err error
}

// Markdown is text, or the cells of a table's row, with what Markdown would take for markup escaped.
func Markdown(cells ...string) string { return markdown.Replace(strings.Join(cells, "\x00")) }

var markdown = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "*", "\\*",
	"_", "\\_", "`", "\\`", "[", "\\[",
	"\n", " ", "\r", " ", "\x00", " | ")

// Line writes a formatted line.
func (t *Text) Line(format string, args ...any) {
	if t.Err == nil {
		_, t.Err = fmt.Fprintf(t.W, format+"\n", args...)
	}
}

// Table writes rows of cells in columns that are aligned right and begin with two spaces.
func (t *Text) Table(rows [][]string) {
	if t.Err == nil {
		t.Err = columns{"  ", columnWidths(rows), func(int) bool { return true }}.write(t.W, rows)
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
func Table(w io.Writer, rows [][]string) error { return Fit(w, rows, math.MaxInt) }

// Fit is Table in at most this many columns of the screen, if it can be: the widest column that is aligned left gives
// way. Its cells are cut in their middle, because the end of a tensor's name holds its layer.
func Fit(w io.Writer, rows [][]string, most int) error {
	if len(rows) == 0 {
		return nil
	}
	head, right := make([]string, len(rows[0])), make([]bool, len(rows[0]))
	for i, cell := range rows[0] {
		head[i], right[i] = strings.CutPrefix(cell, " ")
	}
	rows = append([][]string{head}, rows[1:]...)
	width := columnWidths(rows)
	total := 2 * (len(width) - 1)
	for _, n := range width {
		total += n
	}
	for ; total > most; total-- {
		widest := -1
		for i, n := range width {
			if !right[i] && (widest < 0 || n > width[widest]) {
				widest = i
			}
		}
		if widest < 0 || width[widest] <= 4 {
			break
		}
		width[widest]--
	}
	return columns{"", width, func(i int) bool { return right[i] }}.write(w, rows)
}

// columns are how rows are laid out.
type columns struct {
	indent string
	width  []int
	right  func(column int) bool
}

// columnWidths are those of the widest cells.
func columnWidths(rows [][]string) (width []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
}

// write writes rows without spaces at the ends of lines.
func (c columns) write(w io.Writer, rows [][]string) error {
	var text strings.Builder
	for _, row := range rows {
		line := c.indent
		for i, cell := range row {
			if i > 0 {
				line += "  "
			}
			if runes := []rune(cell); len(runes) > c.width[i] {
				head := (c.width[i] - 1) / 2
				cell = string(runes[:head]) + "…" + string(runes[len(runes)-(c.width[i]-1-head):])
			}
			if pad := strings.Repeat(" ", c.width[i]-utf8.RuneCountInString(cell)); c.right(i) {
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

// Wrap breaks a text that begins at a column of the screen between words, into lines of at most width columns if it
// can be. Lines after the first are indented to that column.
func Wrap(text string, column, width int) string {
	var b strings.Builder
	at := column
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", column))
			at = column
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
