package analyze

import (
	"fmt"
	"image/color"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// reasons are the colours of why lives ended, in the order of the legend.
var reasons = []struct {
	reason string // "" where the life did not end
	fill   color.NRGBA
}{
	{"", sheet.Blue}, {"clear", sheet.Gray}, {"seq_rm", sheet.Red}, {"seq_keep", sheet.Purple},
	{"overwrite", sheet.Orange}, {"other", sheet.Black},
}

// idle is the colour of a life after its last read: the data was held and not needed.
var idle = color.NRGBA{0xc8, 0xc8, 0xc8, 255}

// kvLives draws from when to when blocks of a cache were in use, and until when they were read.
func kvLives(d *figureData) *sheet.Picture {
	if d.KV == nil || len(d.KV.Lives) == 0 {
		return nil
	}
	p := sheet.Column.Panel(d.Title)
	p.Y.Label.Text = fmt.Sprintf("block of %s (%d cells)", d.KV.Name, d.KV.Cells)
	if d.KV.Cells == 1 {
		p.Y.Label.Text = "cell of " + d.KV.Name
	}
	first, last := d.KV.Lives[0].Block, d.KV.Lives[0].Block
	for i := range d.KV.Lives {
		first, last = min(first, d.KV.Lives[i].Block), max(last, d.KV.Lives[i].Block)
	}
	p.Y.Min, p.Y.Max = float64(first), float64(last+1)
	p.Y.Tick.Marker = sheet.Steps(p.Y.Min, p.Y.Max, 6)
	sheet.TimeAxis(&p.X, 0, d.KV.Seconds)
	after := &sheet.Boxes{All: []sheet.Rect{}}
	by := map[string]*sheet.Boxes{}
	for _, l := range d.KV.Lives {
		to := max(l.LastRead, l.From)
		reason := reasons[len(reasons)-1]
		for _, r := range reasons {
			if r.reason == l.Reason {
				reason = r
			}
		}
		if by[reason.reason] == nil {
			by[reason.reason] = &sheet.Boxes{}
		}
		y0, y1 := float64(l.Block), float64(l.Block+1)
		by[reason.reason].All = append(by[reason.reason].All, sheet.Box(l.From, y0, to, y1, reason.fill))
		if l.To > to {
			after.All = append(after.All, sheet.Box(to, y0, l.To, y1, idle))
		}
	}
	p.Add(after)
	lines := 0
	for _, r := range reasons {
		if by[r.reason] != nil {
			p.Add(by[r.reason])
			p.Legend.Add(ended(r.reason), by[r.reason])
			lines++
		}
	}
	if len(after.All) > 0 {
		p.Legend.Add("held after its last read", after)
		lines++
	}
	if d.KV.More > 0 {
		p.Legend.Add(fmt.Sprintf("%d more lives are not drawn", d.KV.More))
		lines++
	}
	beneath(p, lines)
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p},
		Height: vg.Length(2.6+0.13*float64(lines)) * vg.Inch}
}

// ended says in a legend how lives ended.
func ended(reason string) string {
	switch reason {
	case "":
		return "read later, live at the end"
	case "other":
		return "read later, ended otherwise"
	}
	return "read later, ended by " + reason
}
