package bench

import (
	"encoding/json"
	"fmt"
	"io"
)

// Line is one figure of the table of make bench: something measured, as a ratio to a limit that was measured in the
// same session.
type Line struct {
	Section string    `json:"section"`
	Name    string    `json:"name"`
	Value   float64   `json:"value,omitempty"` // median, in Unit; absent where only the ratio counts
	Unit    string    `json:"unit,omitempty"`
	Limit   string    `json:"limit,omitempty"` // what Ratio is a ratio to
	Ratio   *Interval `json:"ratio,omitempty"`
	Figure  string    `json:"figure,omitempty"` // in words, where it is no ratio
	Gate    string    `json:"gate,omitempty"`
	Verdict Verdict   `json:"verdict,omitempty"`
}

// Table is a table that grows while it is measured.
type Table struct {
	Lines []Line
	out   io.Writer
}

// NewTable returns a table that is printed to out, line by line; nil: it is only kept.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

const tableForm = "%-58s %-20s %-52s %-10s %s\n"

// Section begins a part of the table.
func (t *Table) Section(title string) {
	if t.out != nil {
		fmt.Fprintf(t.out, "\n%s\n"+tableForm, title, "what", "measured", "figure (median [95 % interval])", "gate", "verdict")
	}
}

// Add adds a line.
func (t *Table) Add(l Line) {
	t.Lines = append(t.Lines, l)
	if t.out != nil {
		fmt.Fprintf(t.out, tableForm, l.Name, l.measured(), l.figure(), l.Gate, l.Verdict)
	}
}

// Note adds a sentence: what was left out, and why.
func (t *Table) Note(section, text string) {
	t.Lines = append(t.Lines, Line{Section: section, Name: "note", Figure: text})
	if t.out != nil {
		fmt.Fprintf(t.out, "%s\n", text)
	}
}

func (l *Line) measured() string {
	if l.Unit == "" {
		return ""
	}
	return fmt.Sprintf("%.4g %s", l.Value, l.Unit)
}

func (l *Line) figure() string {
	switch {
	case l.Ratio == nil:
		return l.Figure
	case l.Limit == "":
		return l.Ratio.String()
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f] of %s, %d pairs", l.Ratio.Median, l.Ratio.Low, l.Ratio.High, l.Limit, l.Ratio.Pairs)
}

// Failed counts the gates that failed.
func (t *Table) Failed() (n int) {
	for _, l := range t.Lines {
		if l.Verdict == Failed {
			n++
		}
	}
	return n
}

// WriteJSON writes the lines with the machine that they are of.
func (t *Table) WriteJSON(out io.Writer, environment *Environment) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Environment *Environment `json:"environment"`
		Lines       []Line       `json:"lines"`
	}{environment, t.Lines})
}
