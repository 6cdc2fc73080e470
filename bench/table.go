package bench

import (
	"fmt"
	"io"
)

// Line is one row of the table of bench tap.
type Line struct {
	Name    string
	Figure  string // a ratio with its interval, or a figure in words
	Gate    string
	Verdict Verdict
}

// Table collects lines and prints each when it is added.
type Table struct {
	Lines []Line
	out   io.Writer
}

// NewTable returns a table that is printed to out.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

const tableForm = "%-58s %-52s %-10s %s\n"

// Section prints a title and the names of the columns.
func (t *Table) Section(title string) {
	fmt.Fprintf(t.out, "\n%s\n"+tableForm, title, "what", "figure (median [95 % interval])", "gate", "verdict")
}

// Add adds a line.
func (t *Table) Add(l Line) {
	t.Lines = append(t.Lines, l)
	fmt.Fprintf(t.out, tableForm, l.Name, l.Figure, l.Gate, l.Verdict)
}

// note prints a sentence: what was left out, and why.
func (t *Table) note(text string) { fmt.Fprintln(t.out, text) }

// Failed counts the gates that failed.
func (t *Table) Failed() (n int) {
	for _, l := range t.Lines {
		if l.Verdict == Failed {
			n++
		}
	}
	return n
}
