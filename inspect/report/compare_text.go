package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// maxLines is how many lines of a table of differences texts show.
const maxLines = 20

// timesHead is above times per token.
const timesHead = "time per token"

// table is one of a comparison's, the head first. left says in a line what it leaves out; "" for nothing.
type table struct {
	rows [][]string
	left string
}

// tables are those of a comparison: of what differs alone.
func (c *Comparison) tables() (tables []table) {
	var made table
	for _, m := range c.Made {
		made.rows = append(made.rows, []string{m.What, cmp.Or(m.A, "-"), cmp.Or(m.B, "-")})
	}
	if made.rows != nil {
		made.rows = append([][]string{{"made differently", "a", "b"}}, made.rows...)
		tables = append(tables, made)
	}
	for _, part := range []struct {
		head string
		list []*Difference
	}{{"speed", c.Speed}, {timesHead, c.Times}, {"other figures", c.Others}} {
		t := table{rows: [][]string{{part.head, " a", " b", " change", " of a"}}}
		same, more, once := 0, 0, 0
		for _, d := range part.list {
			switch {
			case !d.Differs:
				same++
			case d.isOnce():
				once++
			case len(t.rows) > maxLines:
				more++
			default:
				t.rows = append(t.rows, d.cells())
			}
		}
		var left []string
		if more > 0 {
			left = append(left, fmt.Sprintf("%d with smaller changes: --json has them", more))
		}
		if once > 0 {
			left = append(left, present.Plural(once, "part")+
				" of a single execution, without an interval: --json has them")
		}
		if same > 0 {
			left = append(left, present.Plural(same, "figure")+" without a difference")
		}
		if t.left = strings.Join(left, "; "); len(part.list) > 0 {
			tables = append(tables, t)
		}
	}
	if c.Tensors != nil {
		tables = append(tables, c.tensorTable())
	}
	return tables
}

// isOnce reports whether a difference is that of a part of a single execution, which has no interval.
func (d *Difference) isOnce() bool {
	return d.Unit == unitNS && d.Change.Half == nil && !strings.HasSuffix(d.What, allGraphs)
}

// tensorTable is the tensors that differ.
func (c *Comparison) tensorTable() table {
	t := table{rows: [][]string{{"tensors", " largest difference", " rms of a's", " lowest cosine"}}}
	for i := range c.TensorLines[:min(len(c.TensorLines), maxLines)] {
		g := &c.TensorLines[i]
		t.rows = append(t.rows, []string{g.Tensor, fmt.Sprintf("%.3g", g.Max), present.Percent(g.Relative()),
			fmt.Sprintf("%.6f", g.CosineMin)})
	}
	t.left = fmt.Sprintf("%s over %s, of which %d differ", present.Plural(c.Tensors.Tensors, "tensor"),
		present.Plural(c.Tensors.Tokens, "token"), len(c.TensorLines))
	if n := c.Tensors.OtherID; n > 0 {
		t.left += fmt.Sprintf("; at %s the runs have other tokens", present.Plural(n, "place"))
	}
	return t
}

// cells are the columns of a difference.
func (d *Difference) cells() []string {
	relative := "-"
	if d.Relative != nil {
		percent := 100 * *d.Relative
		digits := 1 // more where a difference would be shown as none
		for percent != 0 && digits < 6 && math.Abs(percent) < 0.5*math.Pow10(-digits) {
			digits++
		}
		relative = strings.Replace(fmt.Sprintf("%+.*f %%", digits, percent), "-", "−", 1)
	}
	sign := "+"
	if d.Change.Value < 0 {
		sign = "−"
	}
	change := Amount{math.Abs(d.Change.Value), d.Change.Half}
	return []string{d.What, d.A.text(d.Unit), d.B.text(d.Unit), sign + change.text(d.Unit), relative}
}

// text returns the figure with its unit.
func (a Amount) text(unit string) string {
	of := func(v float64) string {
		switch unit {
		case unitNS:
			return ns(math.Round(v))
		case unitRate:
			return present.Digits(v)
		case unitBytes:
			return present.Bytes(v)
		case unitShare:
			return present.Percent(v)
		}
		if v != math.Trunc(v) {
			return present.Digits(v)
		}
		return present.Count(v)
	}
	text := of(a.Value)
	if a.Half != nil {
		text += " ± " + of(*a.Half)
	}
	if unit == unitRate {
		text += " " + unit
	}
	return text
}

// WriteText writes the verdicts, and what differs.
func (c *Comparison) WriteText(w io.Writer) error {
	t := &present.Text{W: w}
	for name, r := range c.sides() {
		t.Line("%s  %s, %s\n   %s", name, r.Path, r.State, r.Verdict)
	}
	for _, part := range c.tables() {
		t.Line("")
		if len(part.rows) > 1 {
			t.Columns(part.rows)
		} else {
			t.Line("%s", part.rows[0][0])
		}
		if part.left != "" {
			t.Line("%s", part.left)
		}
	}
	for i, n := range c.Notes {
		if i == 0 {
			t.Line("")
		}
		t.Line("note: %s", n)
	}
	return t.Err
}

// sides are the two runs by their names, in order.
func (c *Comparison) sides() func(func(string, *Report) bool) {
	return func(yield func(string, *Report) bool) {
		if yield("a", c.A) {
			yield("b", c.B)
		}
	}
}

// WriteMarkdown writes the same as a document.
func (c *Comparison) WriteMarkdown(w io.Writer) error {
	t := &present.Text{W: w}
	t.Line("# Two runs\n")
	for name, r := range c.sides() {
		t.Line("- **%s**: %s, %s. %s", name, present.Markdown(r.Path), r.State, present.Markdown(r.Verdict))
	}
	for _, part := range c.tables() {
		t.Line("")
		for i, cell := range part.rows[0] {
			part.rows[0][i] = strings.TrimSpace(cell)
		}
		for i, row := range part.rows {
			if len(part.rows) == 1 {
				t.Line("**%s**", row[0])
				break
			}
			t.Line("| %s |", present.Markdown(row...))
			if i == 0 {
				t.Line("|---|%s", strings.Repeat("---:|", len(row)-1))
			}
		}
		if part.left != "" {
			t.Line("\n%s.", upper(present.Markdown(part.left)))
		}
	}
	for _, n := range c.Notes {
		t.Line("\nNote: %s", present.Markdown(n))
	}
	return t.Err
}
