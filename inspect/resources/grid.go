package resources

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/present"
)

// grid lays out cells in columns as wide as their widest. Columns whose title begins with a blank are aligned
// right, without it. Columns that are empty in all rows are left out.
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
	return present.Duration(time.Duration(*ns))
}

func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	if *rate > 0 && *rate < 0.0995 {
		return strconv.FormatFloat(*rate, 'g', 2, 64)
	}
	return present.Digits(*rate)
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
	return present.Digits(value) + " " + string("kMGTPE"[unit])
}

func movedText(f *Figures) string {
	if f.Read == nil {
		return "-"
	}
	return present.Bytes(*f.Read+*f.Written) + f.star()
}

// gbText is the rate of the same bytes.
func gbText(f *Figures) string {
	if f.GBPerS == nil {
		return "-"
	}
	return rateText(f.GBPerS) + f.star()
}

// star marks bytes that contain padded cells: events say how many FLOPs are of these, and not how many bytes.
func (f *Figures) star() string {
	if f.padded() == "-" {
		return ""
	}
	return "*"
}

// padded is the work of graphs with the cells that they give attention beyond those that tokens may read, where
// that is more.
func (f *Figures) padded() string {
	if f.FLOPs == nil || f.Useful != nil && *f.Useful == *f.FLOPs {
		return "-"
	}
	return countText(f.FLOPs)
}
