package resources

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// grid lays out cells in columns as wide as their widest. Columns whose title begins with a blank are aligned right, without it. Columns
// that are empty in all rows are left out.
type grid struct {
	titles []string
	rows   [][]string
}

func newGrid(titles ...string) *grid { return &grid{titles: titles} }

func (t *grid) add(cells ...string) { t.rows = append(t.rows, cells) }

// appendTo writes the table, or nothing where it has no rows.
func (t *grid) appendTo(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteByte('\n')
	titles := make([]string, len(t.titles))
	widths := make([]int, len(t.titles))
	for i, title := range t.titles {
		titles[i] = strings.TrimPrefix(title, " ")
		for _, row := range t.rows {
			if row[i] != "" && row[i] != "-" {
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]), utf8.RuneCountInString(titles[i]))
			}
		}
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			if line.Len() > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
			if strings.HasPrefix(t.titles[i], " ") {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// The texts of figures; "-" where there is none.

func nsText(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return durationText(*ns)
}

// durationText writes a duration with three significant digits.
func durationText(ns int64) string {
	switch value := float64(ns); {
	case value >= 99.95e9:
		return time.Duration(ns).Round(time.Second).String()
	case value >= 0.9995e9:
		return threeDigits(value/1e9) + " s"
	case value >= 0.9995e6:
		return threeDigits(value/1e6) + " ms"
	case value >= 999.5:
		return threeDigits(value/1e3) + " µs"
	}
	return fmt.Sprintf("%d ns", ns)
}

func threeDigits(value float64) string {
	switch {
	case value >= 99.95:
		return fmt.Sprintf("%.0f", value)
	case value >= 9.995:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	if *rate > 0 && *rate < 0.0995 {
		return strconv.FormatFloat(*rate, 'g', 2, 64)
	}
	return threeDigits(*rate)
}

func percentText(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**share)
}

// countText writes a large number, such as of FLOPs, with a decimal prefix.
func countText(n *int64) string {
	if n == nil {
		return "-"
	}
	value, unit := float64(*n), -1
	for value >= 999.5 && unit < 5 {
		value /= 1000
		unit++
	}
	if unit < 0 {
		return fmt.Sprint(*n)
	}
	return threeDigits(value) + " " + string("kMGTPE"[unit])
}

// bytesText writes bytes in binary units.
func bytesText(n int64) string {
	value, unit := float64(n), -1
	for value >= 1023.5 && unit < 4 {
		value /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%s %ciB", threeDigits(value), "KMGTP"[unit])
}

func movedText(f *Figures) string {
	if f.Read == nil {
		return "-"
	}
	return bytesText(*f.Read + *f.Written)
}
