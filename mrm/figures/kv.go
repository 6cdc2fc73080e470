package figures

import (
	"fmt"
	"image/color"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// reasons are the colours of why lives ended, in the order of the legend.
var reasons = []struct {
	reason, name string
	fill         color.NRGBA
}{
	{"", "went on", sheet.Blue}, {"clear", "clear", sheet.Gray}, {"seq_rm", "seq_rm", sheet.Red}, {"seq_keep", "seq_keep", sheet.Purple}, {"overwrite", "overwrite", sheet.Orange},
}

// idle is the colour of a life after its last read: the data was held and not needed.
var idle = color.NRGBA{0xc8, 0xc8, 0xc8, 255}

// kvLives draws from when to when blocks of a cache were in use, and until when they were read.
func kvLives(d *Data) *sheet.Picture {
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
	seconds(&p.X, 0, d.KV.Seconds)
	after := &sheet.Boxes{All: []sheet.Rect{}}
	by := map[string]*sheet.Boxes{}
	for _, l := range d.KV.Lives {
		to := max(l.LastRead, l.From)
		fill, name := sheet.Gray, "other"
		for _, r := range reasons {
			if r.reason == l.Reason {
				fill, name = r.fill, r.name
			}
		}
		if by[name] == nil {
			by[name] = &sheet.Boxes{}
		}
		y0, y1 := float64(l.Block), float64(l.Block+1)
		by[name].All = append(by[name].All, sheet.Box(l.From, y0, to, y1, fill))
		if l.To > to {
			after.All = append(after.All, sheet.Box(to, y0, l.To, y1, idle))
		}
	}
	p.Add(after)
	lines := 0
	for _, r := range reasons {
		if by[r.name] != nil {
			p.Add(by[r.name])
			p.Legend.Add("needed, "+ended(r.reason, r.name), by[r.name])
			lines++
		}
	}
	if len(after.All) > 0 {
		p.Legend.Add("held behind its last read", after)
		lines++
	}
	if d.KV.More > 0 {
		p.Legend.Add(fmt.Sprintf("%d more lives are not drawn", d.KV.More))
		lines++
	}
	beneath(p, lines)
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p}, Height: vg.Length(2.3+0.13*float64(lines)) * vg.Inch}
}

func ended(reason, name string) string {
	if reason == "" {
		return name
	}
	return "then " + name
}
