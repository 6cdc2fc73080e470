package analyze

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// verdicts are the colours of verdicts, with what stands in the cell.
var verdicts = map[Verdict]struct {
	fill  color.NRGBA
	words string
	ink   color.NRGBA
}{
	AsItIs:       {sheet.Blue, "as it is", sheet.White},
	Refreshed:    {color.NRGBA{0x9e, 0xc4, 0xe6, 255}, "refreshed", sheet.Black},
	RefreshBound: {color.NRGBA{0xf2, 0xc0, 0x78, 255}, "refresh-\nbound", sheet.Black},
	WearsOut:     {sheet.Red, "wears out", sheet.White},
	TooShort:     {sheet.Pale, "insufficient", sheet.Black},
	Unknown:      {sheet.White, "unknown", sheet.Gray},
}

// cell is one of a table.
type cell struct {
	text  string
	fill  color.NRGBA
	ink   color.NRGBA
	align text.XAlignment
}

func plainCell(s string) cell { return cell{s, sheet.White, sheet.Black, text.XCenter} }

// mostClasses is how many classes of memory have room in the table.
const mostClasses = 9

// suitability draws a table: for how long types of regions are needed, how they suit, and in which memory they
// could live.
func suitability(d *figureData) *sheet.Picture {
	if d.Report == nil || len(d.Report.Labels) == 0 {
		return nil
	}
	heads := []string{"region type", "size", "write-\nonce", "needed\np50", "needed\np99", "cen-\nsored", "label",
		"censored\nlabel"}
	widths := []float64{1.5, 0.95, 0.8, 0.95, 0.95, 0.8, 0.95, 1.2}
	shown := d.Report.Classes[:min(len(d.Report.Classes), mostClasses)]
	for i := range shown {
		heads, widths = append(heads, sheet.Wrap(shown[i].Name, 8)), append(widths, 1.2)
	}
	var rows [][]cell
	for i := range d.Report.Labels {
		rows = append(rows, tableRow(d.Report, shown, &d.Report.Labels[i]))
	}
	p := sheet.Page.Panel(d.Title)
	p.HideAxes()
	p.X.Min, p.X.Max = 0, 0
	for _, w := range widths {
		p.X.Max += w
	}
	p.Y.Min, p.Y.Max = -float64(len(rows)), 1.7
	p.Add(&grid{heads, widths, rows})
	return &sheet.Picture{Style: sheet.Page, Panels: []*plot.Plot{p},
		Height: vg.Length(0.8+0.26*float64(len(rows))) * vg.Inch}
}

// tableRow is the row of a type of regions.
func tableRow(r *Report, shown []Class, l *Labels) []cell {
	row := []cell{
		{l.Type, sheet.White, sheet.Black, text.XLeft}, plainCell(sheet.WithUnit(sheet.ByteUnits, float64(l.Bytes))),
		plainCell(shareText(l.WriteOnce)),
		plainCell(neededText(l.KaplanMeier.P50, l.IsKnown50, l.Resolution)),
		plainCell(neededText(l.KaplanMeier.P99, l.IsKnown99, l.Resolution)), plainCell(shareText(l.CensoredShare)),
		plainCell(shortLabel(l.Label)), plainCell(shortLabel(l.LabelCensor)),
	}
	for i := range shown {
		for k := range r.Types {
			if t := &r.Types[k]; t.Type == l.Type && t.Class == shown[i].ID {
				v := verdicts[t.Verdict]
				row = append(row, cell{v.words, v.fill, v.ink, text.XCenter})
			}
		}
	}
	return row
}

func shareText(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100**v)
}

func neededText(v *float64, known bool, resolution float64) string {
	if v == nil {
		return "–"
	}
	if *v < resolution {
		return "< " + sheet.WithUnit(sheet.TimeUnits, sheet.Round(resolution, 2))
	}
	if !known {
		return "≥ " + sheet.WithUnit(sheet.TimeUnits, sheet.Round(*v, 2))
	}
	return sheet.WithUnit(sheet.TimeUnits, sheet.Round(*v, 2))
}

// shortLabel is a label without the end that all have.
func shortLabel(label string) string {
	if label == "" {
		return "–"
	}
	return strings.TrimSuffix(label, "_mrm")
}

// grid draws a table; a row is one high, the heads stand above 0.
type grid struct {
	heads  []string
	widths []float64
	rows   [][]cell
}

// Plot draws it.
func (g *grid) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	style := p.X.Tick.Label
	style.YAlign, style.Font.Size = text.YCenter, vg.Points(6)
	left := 0.0
	for column, width := range g.widths {
		style.XAlign, style.Color = text.XCenter, sheet.Black
		at := vg.Point{X: atX(left + width/2), Y: atY(0.75)}
		if column == 0 {
			style.XAlign, at.X = text.XLeft, atX(left)+vg.Points(2)
		}
		fill(c, style, at, g.heads[column])
		for i, row := range g.rows {
			g.draw(c, row[column], vg.Rectangle{Min: vg.Point{X: atX(left), Y: atY(-float64(i + 1))},
				Max: vg.Point{X: atX(left + width), Y: atY(-float64(i))}}, style)
		}
		left += width
	}
	line := draw.LineStyle{Color: sheet.Black, Width: vg.Points(0.6)}
	for _, y := range []float64{p.Y.Max - 0.05, 0, p.Y.Min} {
		c.StrokeLine2(line, c.Min.X, atY(y), c.Max.X, atY(y))
	}
}

// fill writes lines around a place.
func fill(c draw.Canvas, style draw.TextStyle, at vg.Point, words string) {
	lines := strings.Split(words, "\n")
	for i, line := range lines {
		c.FillText(style, vg.Point{X: at.X, Y: at.Y + vg.Points(6.8)*vg.Length(float64(len(lines)-1)/2-float64(i))},
			line)
	}
}

// draw draws a cell.
func (g *grid) draw(c draw.Canvas, at cell, r vg.Rectangle, style draw.TextStyle) {
	if at.fill != sheet.White {
		r := vg.Rectangle{Min: r.Min.Add(vg.Point{X: 0.7, Y: 0.7}), Max: r.Max.Sub(vg.Point{X: 0.7, Y: 0.7})}
		c.FillPolygon(at.fill, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
	}
	style.Color, style.XAlign = at.ink, at.align
	place := vg.Point{X: (r.Min.X + r.Max.X) / 2, Y: (r.Min.Y+r.Max.Y)/2 + vg.Points(1.2)}
	if at.align == text.XLeft {
		place.X = r.Min.X + vg.Points(2)
	}
	fill(c, style, place, at.text)
}

// refreshing draws how many bytes a day would have to be refreshed, by the retention of the memory: a band between
// both bounds for each type of regions.
func refreshing(d *figureData) *sheet.Picture {
	const from, to, perDecade = -5, 9, 8
	p := sheet.Column.Panel(d.Title)
	p.X.Label.Text, p.Y.Label.Text = "retention of the memory", "bytes refreshed per day"
	p.X.Min, p.X.Max = from, to
	p.X.Tick.Marker = sheet.Ages(from, to)
	low, high, named := math.Inf(1), math.Inf(-1), 0
	var shapes []plot.Plotter
	for _, group := range byType(d.Subjects) {
		b := &band{fill: colorOf(group[0].Type.String())}
		for i := range (to-from)*perDecade + 1 {
			x := from + float64(i)/perDecade
			c := &Class{RetentionS: &Figure{Value: math.Pow(10, x)}, Refresh: Needed}
			row := judgeRow(group, c, demandOptions{})
			b.x = append(b.x, x)
			b.low, b.high = append(b.low, log10(row.RefreshedPerDay.Low)),
				append(b.high, log10(row.RefreshedPerDay.High))
			high = max(high, log10(row.RefreshedPerDay.High))
			if row.RefreshedPerDay.High > 0 {
				low = min(low, log10(row.RefreshedPerDay.High))
			}
		}
		if !slices.ContainsFunc(b.high, func(v float64) bool { return v > -29 }) { // nothing is refreshed
			continue
		}
		shapes = append(shapes, b)
		p.Legend.Add(group[0].Type.String(), b)
		named++
	}
	if high < low || named == 0 {
		return nil
	}
	p.Y.Min, p.Y.Max = math.Floor(max(low, high-16)-0.5), math.Ceil(high)
	p.Y.Tick.Marker = sheet.Decades(p.Y.Min, p.Y.Max, 6, sheet.ByteDecade)
	p.Add(gridLines)
	p.Add(shapes...)
	p.Legend.Add("at most: censored lives last all day",
		&sheet.Curve{Style: draw.LineStyle{Color: sheet.Black, Width: vg.Points(0.9)}})
	p.Legend.Add("at least: they end with the run",
		&sheet.Curve{Style: draw.LineStyle{Color: sheet.Black, Width: vg.Points(0.9), Dashes: bandDashes}})
	named += 2
	beneath(p, named)
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p},
		Height: vg.Length(2.1+0.13*float64(named)) * vg.Inch}
}

// log10 is a logarithm; of 0 it is far below everything.
func log10(v float64) float64 { return math.Log10(max(v, 1e-30)) }

// bandDashes are those of the lower curve of a band.
var bandDashes = []vg.Length{vg.Points(2), vg.Points(1.5)}

// band is an area between two curves, with both as lines.
type band struct {
	x, low, high []float64
	fill         color.NRGBA
}

// Plot draws it.
func (b *band) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	y := func(v float64) vg.Length { return max(atY(v), c.Min.Y) }
	var upper, lower []vg.Point
	add := func(line []vg.Point, i int, v float64) []vg.Point {
		if n := len(line); n > 0 && line[n-1].Y <= c.Min.Y {
			return line // it has come to 0
		}
		return append(line, vg.Point{X: atX(b.x[i]), Y: y(v)})
	}
	for i := range b.x {
		upper, lower = add(upper, i, b.high[i]), add(lower, i, b.low[i])
	}
	area := append([]vg.Point{}, upper...)
	for i := len(lower) - 1; i >= 0; i-- {
		area = append(area, lower[i])
	}
	pale := b.fill
	pale.A = 70
	c.FillPolygon(pale, area)
	style := draw.LineStyle{Color: b.fill, Width: vg.Points(0.9)}
	c.StrokeLines(style, upper)
	style.Dashes = bandDashes
	c.StrokeLines(style, lower)
}

// Thumbnail draws a sample in a legend.
func (b *band) Thumbnail(c *draw.Canvas) {
	pale := b.fill
	pale.A = 70
	c.FillPolygon(pale, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	c.StrokeLine2(draw.LineStyle{Color: b.fill, Width: vg.Points(0.9)}, c.Min.X, c.Max.Y, c.Max.X, c.Max.Y)
}
