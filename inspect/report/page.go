package report

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // of the page's style and script
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/export"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Page is a report as a document: the verdict, and sections with charts of what was recorded.
type Page struct {
	*Report
	Made     time.Time  `json:"made"`
	Sections []*section `json:"sections"`
}

// section is one subject. It has charts and tables where its recorder ran, else it says what records them.
type section struct {
	ID      string    `json:"id"`
	Title   string    `json:"title"`
	Text    []string  `json:"text,omitempty"` // paragraphs
	Missing string    `json:"missing,omitempty"`
	Charts  []*figure `json:"charts,omitempty"`
	Tables  []*titled `json:"tables,omitempty"`
	notes   []string
}

// titled is rows of text, their head first.
type titled struct {
	Title string     `json:"title"`
	Rows  [][]string `json:"rows"`
}

// figureKind is how a chart is drawn.
type figureKind string

// The kinds of charts.
const (
	drawnSpans  figureKind = "spans" // parts of the time, in rows
	drawnLines  figureKind = "lines" // values over an axis, as lines or points
	drawnBars   figureKind = "bars"  // a bar per row, its parts one after the other
	drawnMatrix figureKind = "heat"  // a value per row and column, as shades
	drawnMeans  figureKind = "means" // a mean per row and series, with its interval
)

// figure is a figure, and the table behind it.
type figure struct {
	Kind    figureKind `json:"kind"`
	Title   string     `json:"title"` // what is plotted
	X       axis       `json:"x"`
	Y       axis       `json:"y"` // of a matrix: of its values
	Rows    []string   `json:"rows,omitempty"`
	Columns []string   `json:"columns,omitempty"`
	Series  []*curve   `json:"series"`
	Note    string     `json:"note,omitempty"` // what was put together or left out
}

// axis is what a direction shows. Unit is s, B, B/s, % or a noun; "" for a plain number.
type axis struct {
	Name string `json:"name,omitempty"`
	Unit string `json:"unit,omitempty"`
	Log  bool   `json:"log,omitempty"`
	Time bool   `json:"time,omitempty"` // seconds of the run: charts with such an axis are zoomed together
}

// curve is values of one kind. A value that is not known is NaN.
type curve struct {
	Name string   `json:"name"`
	X    values   `json:"x,omitempty"`
	W    values   `json:"w,omitempty"` // of spans their lengths, of means half of their intervals
	Y    values   `json:"y,omitempty"` // of a matrix: row by row
	Row  []int    `json:"row,omitempty"`
	Text []string `json:"text,omitempty"` // a label for each value
	Line bool     `json:"line,omitempty"` // values are connected
	Step bool     `json:"step,omitempty"` // and each holds until the next
	// Colour is one of eight, from 1; 0: by its position among the series.
	Colour int `json:"colour,omitempty"`
}

// values are numbers with ten digits.
type values []float64

// MarshalJSON writes what is not known as null.
func (v values) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if x-x != 0 { // NaN or infinite
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, x, 'g', 10, 64)
		}
	}
	return append(b, ']'), nil
}

// WriteHTML writes a run's page as one file: its style, script and data are in it, and it asks for nothing else.
func WriteHTML(ctx context.Context, w io.Writer, run *Run) error {
	page, err := run.Page(ctx)
	if err != nil {
		return err
	}
	_, err = w.Write(page.html())
	return err
}

// Page makes the document of a run.
func (r *Run) Page(ctx context.Context) (*Page, error) {
	p := &Page{Report: r.Report(), Made: time.Now().Truncate(time.Second)}
	all, err := export.CollectTracks(ctx, r.Path, nil)
	if err != nil {
		return nil, err
	}
	over := &tracks{all}
	if over.Begin == 0 && over.Unix > 0 && r.KV != nil && r.KV.BeginUnixNS > 0 { // the cache alone has times
		over.Begin = r.KV.BeginUnixNS - over.Unix + over.Mono
		over.End = over.Begin + int64(r.KV.Seconds*1e9)
	}
	if over.Unix > 0 && r.Requests != nil && len(r.Requests.All) > 0 { // they begin before their first graph
		begin, end := requestTimes(r.Requests, over)
		if over.Begin == 0 {
			over.Begin, over.End = begin, end
		}
		over.Begin, over.End = min(over.Begin, begin), max(over.End, end)
	}
	for _, make := range sections {
		s, err := make(ctx, r, over)
		if err != nil {
			return nil, err
		}
		if s != nil { // a subject that the run has
			p.Sections = append(p.Sections, s)
		}
	}
	p.Notes = r.Notes // with those that the sections added
	return p, nil
}

// policy is the content security policy of a page: its own style and script, and nothing else.
func policy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hash(pageStyle) + "; script-src " +
		hash(pageScript)
}

// document is HTML. Every text in it was escaped by add.
type document struct {
	bytes.Buffer
	charts []*figure
}

// add writes markup, with texts in the place of its %s.
func (d *document) add(markup string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, t := range texts {
		escaped[i] = html.EscapeString(t)
	}
	fmt.Fprintf(d, markup, escaped...)
}

// table writes rows, the first as their head. Columns of figures alone are set to the right.
func (d *document) table(rows [][]string) {
	d.add("<div class=\"scroll\" tabindex=\"0\"><table class=\"%s\">", rows[0][0]+"s")
	for i, row := range rows {
		d.add("<tr>")
		for k, cell := range row {
			switch {
			case i == 0:
				d.add("<th scope=\"col\">%s</th>", cell)
			case k == 0:
				d.add("<th scope=\"row\">%s</th>", cell)
			case ofFigures(rows, k):
				d.add("<td class=\"n\">%s</td>", cell)
			default:
				d.add("<td>%s</td>", cell)
			}
		}
		d.add("</tr>\n")
	}
	d.add("</table></div>\n")
}

// ofFigures reports whether all cells of a column below its head are figures, or empty.
func ofFigures(rows [][]string, column int) bool {
	return !slices.ContainsFunc(rows[1:], func(row []string) bool {
		return column < len(row) && row[column] != "" && !isFigure(row[column])
	})
}

// isFigure reports whether a cell is a number, with its unit or without.
func isFigure(cell string) bool {
	digits := strings.TrimLeft(cell, "+-−")
	return cell == "-" || len(cell) < 32 && digits != "" && digits[0] >= '0' && digits[0] <= '9'
}

// head begins a document, up to its heading.
func (d *document) head(title string) {
	d.add("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" +
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">")
	d.add("<meta http-equiv=\"Content-Security-Policy\" content=\"%s\"><title>%s: llamatap report</title>\n", policy(),
		title)
	d.WriteString("<style>" + pageStyle + "</style></head><body>\n<header>")
}

// links lead to sections, and end the heading.
func (d *document) links(all []*section) {
	d.add("<nav aria-label=\"Sections\">")
	for _, s := range all {
		d.add(" <a href=\"#%s\">%s</a>", s.ID, s.Title)
	}
	d.add("</nav></header>\n<main>\n")
}

// sections writes sections, with places for their charts.
func (d *document) sections(all []*section) {
	for _, s := range all {
		d.add("<section id=\"%s\"><h2>%s</h2>\n", s.ID, s.Title)
		for _, text := range s.Text {
			d.add("<p>%s</p>", text)
		}
		if s.Missing != "" {
			d.add("<p class=\"missing\">%s</p>", s.Missing)
		}
		for _, c := range s.Charts {
			d.add("<figure data-chart=\"%s\"><figcaption>%s</figcaption></figure>\n", strconv.Itoa(len(d.charts)),
				c.Title)
			d.charts = append(d.charts, c)
		}
		for _, t := range s.Tables {
			if t.Title != "" {
				d.add("<h3>%s</h3>\n", t.Title)
			}
			d.table(t.Rows)
		}
		for _, n := range s.notes {
			d.add("<p class=\"note\">%s</p>", n)
		}
		d.add("</section>\n")
	}
}

// end writes what the charts show, and the script that draws them.
func (d *document) end(made time.Time) []byte {
	d.add("</main>\n<footer><p>Written by llamatap report at %s. <span id=\"keys\"></span></p></footer>\n"+
		"<noscript><p>The charts need JavaScript.</p></noscript>\n", made.Format("2006-01-02 15:04:05 -0700"))
	data, err := json.Marshal(append([]*figure{}, d.charts...)) // which escapes <, > and &
	if err != nil {
		panic(err) // the types above can be marshalled
	}
	d.WriteString("<script type=\"application/json\" id=\"charts\">")
	d.Write(data)
	d.WriteString("</script>\n<script>" + pageScript + "</script>\n</body></html>\n")
	return d.Bytes()
}

// html writes the document.
func (p *Page) html() []byte {
	d := &document{}
	d.head(p.Path)
	d.add("<p class=\"run\">%s · %s · %s</p><h1 id=\"verdict\">%s</h1>", p.Path, cmp.Or(p.Model, "unknown model"),
		string(p.State), headline(p.Verdict))
	if rest := p.Verdict[len(headline(p.Verdict)):]; rest != "" {
		d.add("<p class=\"lead\">%s</p>", rest)
	}
	all := append([]*section{{ID: "causes", Title: "Causes", Tables: []*titled{{Rows: p.causeRows()}}, notes: p.Notes}},
		p.Sections...)
	d.links(all)
	d.sections(all)
	return d.end(p.Made)
}

// headline is the first sentence of a verdict.
func headline(verdict string) string {
	if first, _, more := strings.Cut(verdict, ". "); more {
		return first + "."
	}
	return verdict
}

// causeRows are the findings as a table.
func (r *Report) causeRows() [][]string {
	rows := [][]string{{"cause", "share", "limit", "state", "of", "evidence"}}
	for _, f := range r.Findings {
		if f.Share == nil {
			rows = append(rows, []string{f.Cause, "-", "-", "not judged", "", f.NotJudged})
		} else {
			rows = append(rows, append(f.cells(), f.Evidence))
		}
	}
	return rows
}
