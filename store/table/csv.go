package table

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
)

// CSV writes comma-separated values. All of a program's CSV goes through it, so that numbers have one form. It is
// for one goroutine.
type CSV struct {
	out   *csv.Writer
	cells []string
}

// NewCSV begins a table whose first line names its columns.
func NewCSV(w io.Writer, columns ...string) *CSV {
	c := &CSV{out: csv.NewWriter(w)}
	c.out.Write(columns)
	return c
}

// Row writes a row of values, whose form is [Cell]'s.
func (c *CSV) Row(values ...any) {
	c.cells = c.cells[:0]
	for _, v := range values {
		c.cells = append(c.cells, Cell(v))
	}
	c.out.Write(c.cells)
}

// Close writes what is buffered, and returns the first error of writing. It does not close the writer after it.
func (c *CSV) Close() error {
	c.out.Flush()
	return c.out.Error()
}

// Cell is the text of a value: a number in the fewest digits that read back as the same number, inf for infinity,
// and nothing for what is unknown: nil, a nil pointer or NaN. Of other pointers it is the value's.
func Cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case float64:
		switch {
		case math.IsNaN(v):
			return ""
		case math.IsInf(v, 1):
			return "inf"
		case math.IsInf(v, -1):
			return "-inf"
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer {
		if p.IsNil() {
			return ""
		}
		return Cell(p.Elem().Interface())
	}
	return fmt.Sprint(v)
}
