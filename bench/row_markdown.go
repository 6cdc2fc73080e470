package bench

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// markdownColumn is a column of the md form. Its width is llama-bench's, negative where text stands on the left.
type markdownColumn struct {
	name  string
	width int
	value func(*Row) string
}

// optionalColumns are the settings that llama-bench shows only where they differ from its defaults, with its headings.
var optionalColumns = []struct {
	column, head string
	width        int
	byDef        string
}{
	{"n_batch", "n_batch", 7, "2048"},
	{"n_ubatch", "n_ubatch", 8, "512"},
	{"type_k", "type_k", 6, "f16"},
	{"type_v", "type_v", 6, "f16"},
	{"flash_attn", "fa", 3, "-1"},
}

// markdown lists the columns that rows need: llama-bench's, then ours.
func markdown(rows []Row) []markdownColumn {
	list := []markdownColumn{
		{"model", -30, func(r *Row) string { return r.ModelType }},
		{"size", 10, func(r *Row) string { return binarySize(r.ModelSize) }},
		{"params", 10, func(r *Row) string { return count(r.Parameters) }},
		{"backend", -10, func(r *Row) string { return r.Backends }},
	}
	computes := func(r Row) bool {
		return strings.Contains(r.Backends, "CPU") || strings.Contains(r.Backends, "BLAS") ||
			strings.Contains(r.Backends, "ZenDNN")
	}
	onCPU := slices.ContainsFunc(rows, computes)
	if !onCPU {
		list = append(list, setting("n_gpu_layers", "ngl", 3))
	}
	if onCPU || varies(rows, "n_threads") {
		list = append(list, setting("n_threads", "threads", 7))
	}
	for _, o := range optionalColumns {
		if varies(rows, o.column) || len(rows) > 0 && find(o.column).text(&rows[0]) != o.byDef {
			list = append(list, setting(o.column, o.head, o.width))
		}
	}
	list = append(list,
		markdownColumn{"test", 15, (*Row).Test},
		markdownColumn{"t/s", 20, func(r *Row) string { return fmt.Sprintf("%.2f ± %.2f", r.AvgTS, r.StddevTS) }})
	return append(list, extraColumns(rows)...)
}

// extraColumns returns the columns behind llama-bench's.
func extraColumns(rows []Row) []markdownColumn {
	list := []markdownColumn{
		{"t/s median, 95 %", 26, func(r *Row) string {
			if r.MedianTS == nil || r.LowTS == nil {
				return ""
			}
			return fmt.Sprintf("%.2f [%.2f, %.2f]", *r.MedianTS, *r.LowTS, *r.HighTS)
		}},
		{"TTFT ms", 9, func(r *Row) string { return milliseconds(r.FirstNS) }},
		{"ITL p50/p90/p99 ms", 22, func(r *Row) string {
			if r.TokenP50 == nil {
				return ""
			}
			return milliseconds(r.TokenP50) + " / " + milliseconds(r.TokenP90) + " / " + milliseconds(r.TokenP99)
		}},
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.PromptName != nil }) {
		list = append(list, markdownColumn{"prompt", -12, func(r *Row) string { return textOrUnknown(r.PromptName) }})
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Sequences != nil }) {
		list = append(list, markdownColumn{"sequences", 9, func(r *Row) string { return fmt.Sprint(r.sequences()) }})
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.TapFlags != nil }) {
		list = append(list,
			markdownColumn{"tap", -12, func(r *Row) string { return textOrUnknown(r.Tap) }},
			markdownColumn{"bytes/token", 11, func(r *Row) string {
				if r.Captured == nil || r.Recorded == nil || *r.Recorded == 0 {
					return ""
				}
				return fmt.Sprintf("%.0f", float64(*r.Captured)/float64(*r.Recorded))
			}},
			markdownColumn{"own time", 8, func(r *Row) string {
				if r.OwnNS == nil || r.GraphNS == nil || *r.GraphNS == 0 {
					return ""
				}
				return fmt.Sprintf("%.2f %%", 100*float64(*r.OwnNS)/float64(*r.GraphNS))
			}})
	}
	return list
}

func textOrUnknown(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func milliseconds(ns *int64) string {
	if ns == nil {
		return ""
	}
	ms := float64(*ns) / 1e6
	if ms < 1 {
		return fmt.Sprintf("%.3f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

func setting(name, head string, width int) markdownColumn {
	return markdownColumn{head, width, find(name).text}
}

func find(name string) column {
	return columns[slices.IndexFunc(columns, func(c column) bool { return c.name == name })]
}

// varies reports whether a column has more than one value.
func varies(rows []Row, name string) bool {
	c := find(name)
	return slices.ContainsFunc(rows, func(r Row) bool { return c.text(&r) != c.text(&rows[0]) })
}

func binarySize(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

func count(n uint64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f B", float64(n)/1e9)
}

// writeMarkdown writes the table and, where the build is known, llama-bench's line about it.
func writeMarkdown(text *strings.Builder, rows []Row) {
	list := markdown(rows)
	head, rule := "|", "|"
	for _, f := range list {
		head += " " + pad(f.name, f.width) + " |"
		end := ":"
		if f.width < 0 {
			end = "-"
		}
		rule += " " + strings.Repeat("-", max(f.width, -f.width)-1) + end + " |"
	}
	text.WriteString(head + "\n" + rule + "\n")
	for i := range rows {
		text.WriteByte('|')
		for _, f := range list {
			text.WriteString(" " + pad(strings.ReplaceAll(f.value(&rows[i]), "|", `\|`), f.width) + " |")
		}
		text.WriteByte('\n')
	}
	if len(rows) > 0 && rows[0].BuildCommit != nil && rows[0].BuildNumber != nil {
		fmt.Fprintf(text, "\nbuild: %s (%d)\n", *rows[0].BuildCommit, *rows[0].BuildNumber)
	}
}

// pad fills a text to a width, on the right where it is negative.
func pad(s string, width int) string {
	room := strings.Repeat(" ", max(0, max(width, -width)-utf8.RuneCountInString(s)))
	if width < 0 {
		return s + room
	}
	return room + s
}
