package memory

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
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
func useRows(r *Report, column int) (head []string, rows [][]any) {
	head = []string{"collector", "symbol", "demangled"}
	switch column {
	case memtrace.TraceDataSymbol:
		head[1] = "data_symbol"
	case memtrace.TracePID:
		head[1], head[2] = "pid", "name"
	}
	for i := range *usesOf(r, column) {
		u := &(*usesOf(r, column))[i]
		row := []any{u.Collector, u.Symbol + u.DataSymbol, u.Demangled}
		if column == memtrace.TracePID {
			row[1], row[2] = u.PID, u.Program
		}
		low, high := u.all.Interval()
		rows = append(rows, append(row, u.Samples, u.Share, u.all.Events, low, high, eventText(u.Events, "read", ""),
			eventText(u.Events, "write", ""), seen[any](u.BytesRead, u.BytesRead, nil),
			seen[any](u.BytesWritten, u.BytesWritten, nil), u.PagesSeen))
	}
	return append(head, "samples", "share", "events", "events_low", "events_high", "reads", "writes",
		"bytes_read", "bytes_written", "pages_seen"), rows
}

// seen is a cell, or another one where its number is 0: what was not seen is unknown.
func seen[T any](n uint64, cell, none T) T {
	if n == 0 {
		return none
	}
	return cell
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
			row = []string{u.Collector, figure(u.PID, "%d"), cmp.Or(short(u.Program), "-")}
		}
		interval := "exact"
		if low, high := u.all.Interval(); low != high {
			interval = fmt.Sprintf("%.0f to %.0f", low, high)
		}
		rows = append(rows, append(row, strconv.FormatInt(u.Samples, 10), present.Percent(u.Share),
			fmt.Sprintf("%.0f", u.all.Events), interval, eventText(u.Events, "read", "-"),
			eventText(u.Events, "write", "-"),
			seen(u.BytesRead, present.Bytes(float64(u.BytesRead)), "-"),
			seen(u.BytesWritten, present.Bytes(float64(u.BytesWritten)), "-"), figure(u.PagesSeen, "%d")))
	}
	if len(rows) > 1 {
		out.Table(rows)
		return
	}
	out.Line("note    %s", noSamples)
}
