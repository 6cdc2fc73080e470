package host

import (
	"math"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// grid is a table as present.Table writes it.
type grid [][]string

// write writes it after an empty line.
func (g grid) write(b *strings.Builder) {
	b.WriteString("\n")
	present.Table(b, g)
}

// threeDigits writes a figure with three digits, or all of a larger one.
func threeDigits(v float64) string {
	if math.Abs(v) >= 100 || v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// usText is a latency given in µs, msText a duration in ms.
func usText(us float64) string { return present.Seconds(us / 1e6) }

func msText(ms float64) string { return present.Seconds(ms / 1e3) }

// percentText is the name of a percentile, without the p.
func percentText(p float64) string { return strconv.FormatFloat(p, 'g', -1, 64) }

// percentileHead are the heads of columns of percentiles.
func percentileHead(percents []float64) (head []string) {
	for _, p := range percents {
		head = append(head, " p"+percentText(p)+" ≤")
	}
	return head
}

// percentileCells are these columns of a row; it has all of the percentiles, or none.
func percentileCells(percents []float64, known []Percentile) (cells []string) {
	for i := range percents {
		if i < len(known) {
			cells = append(cells, usText(float64(known[i].AtMostUS)))
		} else {
			cells = append(cells, "-")
		}
	}
	return cells
}

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
