package resources

import (
	"fmt"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/present"
)

// Picture draws how many cells of each cache were in use over time; nil where no cache was seen.
func (k *KV) Picture() *sheet.Picture {
	if len(k.Timeline) == 0 {
		return nil
	}
	parts := len(k.Timeline[0].Cells)
	picture := &sheet.Picture{Style: sheet.Screen, Height: vg.Length(2.4*float64(len(k.Timeline))+0.4) * vg.Inch,
		Note: fmt.Sprintf("%s; means of %d equal times of %s", filepath.Base(k.Path), parts,
			present.Seconds(k.Seconds/float64(parts)))}
	for i := range k.Timeline {
		panel := k.Timeline[i].panel(k.Seconds)
		if i+1 < len(k.Timeline) {
			sheet.Bare(&panel.X)
		}
		picture.Panels = append(picture.Panels, panel)
	}
	return picture
}

// panel draws one cache.
func (t *KVCache) panel(seconds float64) *plot.Plot {
	most := slices.Max(t.Cells)
	title := fmt.Sprintf("KV cache of context %d (%s): cells in use, at most %.0f", t.Ctx, t.Cache, most)
	if t.Total > 0 {
		title += fmt.Sprintf(" of %d", t.Total)
	}
	p := sheet.Screen.Panel(title)
	p.Y.Label.Text = "cells"
	if t.Block > 1 {
		p.Y.Label.Text = fmt.Sprintf("cells in blocks of %d", t.Block)
	}
	used := &sheet.Boxes{}
	for i, cells := range t.Cells {
		part := seconds / float64(len(t.Cells))
		if cells > 0 {
			used.All = append(used.All, sheet.Box(float64(i)*part, 0, float64(i+1)*part, cells, sheet.Blue))
		}
	}
	sheet.TimeAxis(&p.X, 0, seconds)
	p.Add(sheet.Both, used)
	if total := float64(t.Total); total > 0 && most > total/10 { // else little of the height would be used
		most = total
		limit := sheet.NewCurve([]float64{0, p.X.Max}, []float64{total, total}, sheet.Red, 1)
		limit.IsDots, limit.Style.Dashes = false, []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(limit)
		p.Legend.Add(fmt.Sprintf("all %d cells", t.Total), limit)
		p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, vg.Points(6), vg.Points(-12)
	}
	sheet.FromZero(&p.Y, most)
	return p
}
