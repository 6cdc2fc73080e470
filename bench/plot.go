package bench

import (
	"fmt"
	"image/color"
	"slices"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// Picture draws the tokens per second of each test: the median of its repetitions, with its 95 % interval. It is nil
// for no rows.
func Picture(rows []Row) *sheet.Picture {
	var picture *sheet.Picture
	for _, metric := range units[0].metrics {
		figure := sheet.Cells{Title: fmt.Sprintf("Tokens per second, %s", metricTitles[metric]), Label: "tokens/s"}
		var taps []string
		for i := range rows {
			r := &rows[i]
			if metricOf(r) != metric || len(r.SamplesTS) == 0 {
				continue
			}
			name, tap := common(rows, r, r), textOrUnknown(r.Tap)
			cell := slices.Index(figure.Names, name)
			if cell < 0 {
				cell, figure.Names = len(figure.Names), append(figure.Names, name)
			}
			if !slices.Contains(taps, tap) {
				taps = append(taps, tap)
			}
			m := medianInterval(r.SamplesTS)
			mean := sheet.CellMean{Cell: cell, Type: tap, Mean: m.Median}
			if len(r.SamplesTS) > 1 {
				mean.Low, mean.High = &m.Low, &m.High
			}
			figure.Means = append(figure.Means, mean)
		}
		if figure.Means == nil {
			continue
		}
		figure.Color = func(tap string) color.Color {
			return sheet.Curves[slices.Index(taps, tap)%len(sheet.Curves)]
		}
		part := figure.Picture()
		if picture == nil {
			picture = part
			picture.Note = "dots: medians; bars: 95 % intervals (bootstrap)"
			if e, ok := rows[0].Environment.(*Environment); ok && e != nil {
				picture.Note += fmt.Sprintf("; others took %.1f %% of a CPU", 100*e.Spin.LostShare)
			}
			continue
		}
		picture.Panels, picture.Height = append(picture.Panels, part.Panels...), picture.Height+part.Height
		if part.Style.Width > picture.Style.Width {
			picture.Style = part.Style
		}
	}
	return picture
}

// metricTitles say what a metric is.
var metricTitles = map[string]string{"decode": "generation", "prefill": "prompts", "both": "prompts and generation"}
