package present

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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

// Table writes rows of cells in columns that are aligned right.
func (t *Text) Table(rows [][]string) {
	if t.Err != nil {
		return
	}
	tabs := tabwriter.NewWriter(t.W, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(tabs, strings.Join(row, "\t")+"\t")
	}
	t.Err = tabs.Flush()
}
