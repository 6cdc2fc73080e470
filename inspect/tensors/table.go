package tensors

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Width is the number of columns that text output fits into.
const Width = 100

// textTable lays out cells in columns that are as wide as their widest cell, at most Width in all: the widest
// left-aligned column gives way, its cells cut with an ellipsis.
type textTable struct {
	columns []column
	rows    [][]string
}

type column struct {
	title string
	left  bool // aligned left: text; else right: numbers
}

func newTable(columns ...column) *textTable { return &textTable{columns: columns} }

func (t *textTable) add(cells ...string) { t.rows = append(t.rows, cells) }

const tableGap = 2

func (t *textTable) widths() []int {
	widths := make([]int, len(t.columns))
	total := tableGap * (len(t.columns) - 1)
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	for total > Width {
		widest := -1
		for i, c := range t.columns {
			if c.left && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 || widths[widest] <= 4 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

func (t *textTable) writeTo(w io.Writer) error {
	widths := t.widths()
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, text := range row {
			if i > 0 {
				line.WriteString(strings.Repeat(" ", tableGap))
			}
			line.WriteString(t.columns[i].fit(text, widths[i]))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fit pads or cuts text to a width. Text is cut in its middle, because the end of a tensor's name holds its layer.
func (c column) fit(text string, width int) string {
	runes := []rune(text)
	if len(runes) > width {
		head := (width - 1) / 2
		return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
	}
	pad := strings.Repeat(" ", width-len(runes))
	if c.left {
		return text + pad
	}
	return pad + text
}

// shapeText writes a shape in ggml order, such as 128x7, with * where executions differ.
func shapeText(shape []int64) string {
	var b strings.Builder
	for i, n := range shape {
		if i > 0 {
			b.WriteByte('x')
		}
		if n == 0 {
			b.WriteByte('*')
		} else {
			fmt.Fprint(&b, n)
		}
	}
	return b.String()
}

func ratioText(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}
