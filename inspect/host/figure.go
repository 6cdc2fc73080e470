package host

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// grid is a table: its first row is the head, and columns whose head begins with a space are numbers, aligned right.
type grid [][]string

// write writes it behind an empty line, without what is empty at the ends of lines.
func (g grid) write(b *strings.Builder) {
	b.WriteString("\n")
	width := make([]int, len(g[0]))
	right := make([]bool, len(g[0]))
	for i, head := range g[0] {
		right[i] = strings.HasPrefix(head, " ")
		g[0][i] = strings.TrimPrefix(head, " ")
	}
	for _, row := range g {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range g {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// threeDigits writes a figure with three digits, or all of a larger one.
func threeDigits(v float64) string {
	if math.Abs(v) >= 100 || v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// maybe writes a figure that may not be known.
func maybe(v *float64, text func(float64) string) string {
	if v == nil {
		return "-"
	}
	return text(*v)
}

// usText is a latency given in µs.
func usText(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 999.5:
		return threeDigits(us) + " µs"
	case us < 999.5e3:
		return threeDigits(us/1e3) + " ms"
	}
	return threeDigits(us/1e6) + " s"
}

// msText is a duration given in ms.
func msText(ms float64) string { return usText(ms * 1e3) }

// secondsText is a duration given in seconds.
func secondsText(s float64) string {
	switch {
	case s < 0.9995:
		return usText(s * 1e6)
	case s < 120:
		return strconv.FormatFloat(s, 'g', 3, 64) + " s"
	case s < 2*3600:
		return strconv.FormatFloat(s/60, 'f', 1, 64) + " min"
	}
	return strconv.FormatFloat(s/3600, 'f', 1, 64) + " h"
}

// percentText is the name of a percentile, without the p.
func percentText(p float64) string { return strconv.FormatFloat(p, 'g', -1, 64) }

func signed(r float64) string {
	if text := strconv.FormatFloat(r, 'f', 3, 64); r < 0 && text != "-0.000" {
		return text
	}
	return "+" + strconv.FormatFloat(math.Abs(r), 'f', 3, 64)
}

// pText is a probability.
func pText(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return strconv.FormatFloat(p, 'f', 4, 64)
}
