package resources

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// grid is a table as present.Table writes it, without columns that are empty in all rows.
type grid struct {
	titles []string
	rows   [][]string
}

func newGrid(titles ...string) *grid { return &grid{titles: titles} }

func (t *grid) add(cells ...string) { t.rows = append(t.rows, cells) }

// appendTo writes the table after an empty line, or nothing where it has no rows.
func (t *grid) appendTo(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	all := append([][]string{t.titles}, t.rows...)
	kept := make([][]string, len(all))
	for i := range t.titles {
		if slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "" && row[i] != "-" }) {
			for k, row := range all {
				kept[k] = append(kept[k], row[i])
			}
		}
	}
	b.WriteByte('\n')
	present.Table(b, kept)
}

// The texts of figures; "-" where there is none.

func nsText(ns *int64) string { return present.Maybe(ns, present.Nanoseconds) }

func percentText(share *float64) string { return present.Maybe(share, present.Percent) }

func secondsText(s *float64) string { return present.Maybe(s, present.Seconds) }

func countText(n *int64) string { return present.Maybe(n, present.Count) }

func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	if *rate > 0 && *rate < 0.0995 {
		return strconv.FormatFloat(*rate, 'g', 2, 64)
	}
	return present.Digits(*rate)
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
