package intervene

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
)

// Sizes of the picture, in pixels.
const (
	svgLeft, svgTop, svgBottom = 170, 70, 60
	svgCell, svgRow            = 124, 74
	svgNodeWidth, svgNode      = 84, 34
)

// drawing is a picture of a graph: a column for each token that has nodes, a row for each point of a layer.
type drawing struct {
	*Report
	rows    []ggmlhooks.PointRef // from below
	columns []int                // tokens
	x       map[int]float64      // left side of a column
	width   float64
	places  map[string][2]float64 // middle of each node
}

// WriteSVG draws the graph.
func (r *Report) WriteSVG(out io.Writer) error {
	d := &drawing{Report: r, x: map[int]float64{}, places: map[string][2]float64{}}
	d.arrange()
	height := float64(svgTop + svgBottom + svgRow*(len(d.rows)+1))
	t := &present.Text{W: out}
	t.Line(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %[1]g %[2]g" `+
		`font-family="sans-serif" font-size="12">`, d.width, height)
	t.Line(`<rect width="100%%" height="100%%" fill="white"/>`)
	t.Line(`<text x="16" y="24" font-size="15" font-weight="bold">%s</text>`, html.EscapeString(fmt.Sprintf(
		"Causal graph of %s", r.Model)))
	several := ""
	if n := r.Base.N; n > 1 {
		several = fmt.Sprintf(", mean of %d pairs", n)
	}
	t.Line(`<text x="16" y="44" fill="#555">%s: effect on %s%s. Blue raises it, red lowers it; `+
		`the number in a node is its effect, the width of a link its weight.</text>`, r.Action, r.Metric, several)
	for i, row := range append(d.rows, ggmlhooks.PointRef{}) {
		y := height - svgBottom - svgRow*(float64(i)+0.5)
		name := "output"
		if i < len(d.rows) {
			name = row.Point.String()
			if row.Layer != ggmlhooks.NoLayer {
				name = fmt.Sprintf("layer %d  %s", row.Layer, row.Point)
			}
		}
		t.Line(`<line x1="%d" y1="%.1f" x2="%.1f" y2="%[2]g" stroke="#eee"/>`, svgLeft, y, d.width-10)
		t.Line(`<text x="%d" y="%.1f" text-anchor="end" fill="#333">%s</text>`, svgLeft-12, y+4, name)
	}
	for i, token := range d.columns {
		right := d.width - 10
		if i+1 < len(d.columns) {
			right = d.x[d.columns[i+1]]
		}
		t.Line(`<text x="%.1f" y="%.1f" text-anchor="middle" font-family="monospace">%s</text>`, (d.x[token]+right)/2,
			height-svgBottom+22, html.EscapeString(quoted(r.Tokens[token])))
		t.Line(`<text x="%.1f" y="%.1f" text-anchor="middle" fill="#888" font-size="10">%d</text>`,
			(d.x[token]+right)/2, height-svgBottom+38, token)
	}
	d.links(t)
	d.nodes(t)
	t.Line("</svg>")
	return t.Err
}

// quoted is a token without what breaks a line.
func quoted(s string) string {
	q := strconv.Quote(s)
	if len(q) > 14 {
		q = q[:12] + "…\""
	}
	return q
}

// arrange gives each node its place.
func (d *drawing) arrange() {
	cells := map[ggmlhooks.PointRef]map[int][]string{} // nodes of a row and column
	most := map[int]int{}
	for _, n := range d.Graph.Nodes {
		if n.Site == nil {
			most[len(d.Tokens)-1] = max(most[len(d.Tokens)-1], 1)
			continue
		}
		row := n.Site.ref()
		if cells[row] == nil {
			cells[row] = map[int][]string{}
			d.rows = append(d.rows, row)
		}
		cells[row][n.Site.Token] = append(cells[row][n.Site.Token], n.ID)
		most[n.Site.Token] = max(most[n.Site.Token], len(cells[row][n.Site.Token]))
	}
	d.width = svgLeft
	for token := range d.Tokens {
		if most[token] > 0 {
			d.columns = append(d.columns, token)
			d.x[token] = d.width
			d.width += float64(svgCell * most[token])
		}
	}
	base := float64(svgTop + svgRow*(len(d.rows)+1))
	for i, row := range d.rows {
		for token, ids := range cells[row] {
			for k, id := range ids {
				room := float64(svgCell*most[token]) / float64(len(ids))
				d.places[id] = [2]float64{d.x[token] + room*(float64(k)+0.5), base - svgRow*(float64(i)+0.5)}
			}
		}
	}
	last := len(d.Tokens) - 1
	d.places[outputID] = [2]float64{d.x[last] + float64(svgCell*most[last])/2, base - svgRow*(float64(len(d.rows))+0.5)}
	d.width = max(d.width+10, 760)
}

// links draws the links, the weak ones first.
func (d *drawing) links(t *present.Text) {
	links := slices.Clone(d.Graph.Links)
	slices.SortStableFunc(links, func(a, b Link) int {
		return int(1e6 * (thickness(a.Weight.Mean, d.Graph.largest()) - thickness(b.Weight.Mean, d.Graph.largest())))
	})
	for _, l := range links {
		from, to := d.places[l.Source], d.places[l.Target]
		shape := fmt.Sprintf("M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f", from[0], from[1]-svgNode/2, from[0],
			from[1]-svgRow/2, to[0], to[1]+svgRow/2, to[0], to[1]+svgNode/2)
		if long := from[1] - to[1]; from[0] == to[0] && long > svgRow { // past the nodes between, on their left
			edge := from[0] - svgNodeWidth/2
			side := edge - 12 - 0.1*min(long, 500)
			shape = fmt.Sprintf("M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f", edge, from[1], side, from[1]-10, side,
				to[1]+10, edge, to[1])
		}
		t.Line(`<path d="%s" fill="none" stroke="%s" stroke-width="%.2f" stroke-opacity="0.75">`+
			`<title>%s</title></path>`, shape, colour(l.Weight.Mean), thickness(l.Weight.Mean, d.Graph.largest()),
			html.EscapeString(fmt.Sprintf("%s → %s: %s", l.Source, l.Target, &l.Weight)))
	}
}

// nodes draws the nodes with their effects.
func (d *drawing) nodes(t *present.Text) {
	for i := range d.Graph.Nodes {
		n := &d.Graph.Nodes[i]
		at, first, second, border := d.places[n.ID], d.Metric, "", "#333"
		if n.Site != nil {
			first = n.Site.Point.String()
			if n.Site.Head != AllHeads {
				first = fmt.Sprintf("head %d", n.Site.Head)
			}
			second, border = fmt.Sprintf("%.3g", n.Effect.Mean), colour(n.Effect.Mean)
		} else if answer := d.answer(); answer != "" {
			second = quoted(answer)
		}
		t.Line(`<g><title>%s</title><rect x="%.1f" y="%.1f" width="%d" height="%d" rx="6" fill="#fafafa" stroke="%s"/>`,
			html.EscapeString(d.label(n)), at[0]-svgNodeWidth/2, at[1]-svgNode/2, svgNodeWidth, svgNode, border)
		t.Line(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="11">%s</text>`, at[0], at[1]-2, first)
		t.Line(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="11" fill="%s">%s</text></g>`, at[0], at[1]+12,
			border, html.EscapeString(second))
	}
}
