package memory

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// usesBy is the column of the trace whose values the lines of a table stand for; false: it is another table.
func usesBy(by By) (column int, ok bool) {
	switch by {
	case BySymbol:
		return memtrace.TraceSymbol, true
	case ByDataSymbol:
		return memtrace.TraceDataSymbol, true
	case ByProcess:
		return memtrace.TracePID, true
	}
	return 0, false
}

// useRows are the rows of a table of uses as CSV: what is not known, or was not seen, is an empty cell.
func useRows(r *Report, column int) [][]string {
	rows := [][]string{{"collector", "symbol", "demangled"}}
	switch column {
	case memtrace.TraceDataSymbol:
		rows[0][1] = "data_symbol"
	case memtrace.TracePID:
		rows[0][1], rows[0][2] = "pid", "name"
	}
	rows[0] = append(rows[0], "samples", "share", "events", "events_low", "events_high", "reads", "writes",
		"bytes_read", "bytes_written", "pages_seen")
	for i := range *usesOf(r, column) {
		u := &(*usesOf(r, column))[i]
		row := []string{u.Collector, u.Symbol + u.DataSymbol, u.Demangled}
		if column == memtrace.TracePID {
			row[1], row[2] = "", u.Program
			if u.PID != nil {
				row[1] = strconv.FormatInt(*u.PID, 10)
			}
		}
		low, high := u.all.Interval()
		row = append(row, strconv.FormatInt(u.Samples, 10), table.Cell(&u.Share), table.Cell(&u.all.Events),
			table.Cell(&low),
			table.Cell(&high), eventText(u.Events, "read", ""), eventText(u.Events, "write", ""),
			seen(u.BytesRead, table.Cell(u.BytesRead), ""), seen(u.BytesWritten, table.Cell(u.BytesWritten), ""), "")
		if u.PagesSeen != nil {
			row[len(row)-1] = strconv.FormatInt(*u.PagesSeen, 10)
		}
		rows = append(rows, row)
	}
	return rows
}

// seen is a text, or another one where its number is 0: what was not seen is unknown.
func seen(n uint64, text, none string) string {
	if n == 0 {
		return none
	}
	return text
}

// writeUseTable writes a table of uses for people.
func writeUseTable(out *present.Text, r *Report, column int) {
	head := []string{"samples of", "function"}
	switch column {
	case memtrace.TraceDataSymbol:
		head[1] = "variable"
	case memtrace.TracePID:
		head = []string{"samples of", "process", "program"}
	}
	rows := [][]string{append(head, "samples", "share", "events", "95 % interval", "reads", "writes", "read", "written",
		"pages seen")}
	for i := range *usesOf(r, column) {
		u := &(*usesOf(r, column))[i]
		row := []string{u.Collector, cmp.Or(short(plainName(u.Symbol+u.DataSymbol)), "-")}
		if column == memtrace.TracePID {
			row = []string{u.Collector, "-", cmp.Or(short(u.Program), "-")}
			if u.PID != nil {
				row[1] = strconv.FormatInt(*u.PID, 10)
			}
		}
		interval, pages := "exact", "-"
		if low, high := u.all.Interval(); low != high {
			interval = fmt.Sprintf("%.0f to %.0f", low, high)
		}
		if u.PagesSeen != nil {
			pages = strconv.FormatInt(*u.PagesSeen, 10)
		}
		rows = append(rows, append(row, strconv.FormatInt(u.Samples, 10), present.Percent(u.Share),
			fmt.Sprintf("%.0f", u.all.Events), interval, eventText(u.Events, "read", "-"),
			eventText(u.Events, "write", "-"),
			seen(u.BytesRead, present.Bytes(float64(u.BytesRead)), "-"),
			seen(u.BytesWritten, present.Bytes(float64(u.BytesWritten)), "-"), pages))
	}
	if len(rows) > 1 {
		out.Table(rows)
		return
	}
	out.Line("note    %s", noSamples)
}
