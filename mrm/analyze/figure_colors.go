package analyze

import (
	"image/color"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// typeColors are the colours of types of regions, the same in every picture.
var typeColors = map[string]color.NRGBA{
	"weight": sheet.Blue, "kv_cache": sheet.Orange, "activation": sheet.Green, "compute_buffer": sheet.Cyan,
	"runtime": sheet.Purple, "other": sheet.Gray,
	"padding": sheet.Pale, "code": sheet.Red, "stack": {0x6b, 0x5a, 0x2e, 255}, "static_data": {0xb0, 0x8f, 0x5c, 255},
}

func colorOf(kind string) color.NRGBA {
	if c, ok := typeColors[kind]; ok {
		return c
	}
	return sheet.Gray
}

// cellColor is the colour of means of regions of a type, or of runs as a whole.
func cellColor(kind string) color.Color {
	if kind == "run" {
		return sheet.Black
	}
	return colorOf(kind)
}
