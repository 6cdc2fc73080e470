package present

import (
	"errors"
	"strings"
	"testing"
)

// TestTables: columns are as wide as their widest cell by characters, numbers are aligned right, and no line ends in
// spaces.
func TestTables(t *testing.T) {
	rows := [][]string{{"phase", " time", "note"}, {"é", "1.00 µs", ""}, {"prefill", "-", "x"}}
	var out strings.Builder
	if err := Table(&out, rows); err != nil {
		t.Fatal(err)
	}
	want := "phase       time  note\n" +
		"é        1.00 µs\n" +
		"prefill        -  x\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	text := &Text{W: &out}
	text.Line("%d rows", 2)
	text.Table(rows[1:])
	if want := "2 rows\n        é  1.00 µs\n  prefill        -  x\n"; text.Err != nil || out.String() != want {
		t.Errorf("%v, got\n%s", text.Err, out.String())
	}
	if err := Table(&out, nil); err != nil {
		t.Error(err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestTextFails: the first error stays.
func TestTextFails(t *testing.T) {
	text := &Text{W: full{}}
	text.Line("a")
	text.Table([][]string{{"b"}})
	if text.Err == nil || text.Err.Error() != "disk full" || Table(full{}, [][]string{{"a"}}) == nil {
		t.Errorf("%v", text.Err)
	}
}
