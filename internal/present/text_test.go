package present

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
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

func TestFit(t *testing.T) {
	const width = 100
	rows := [][]string{{"tensor", "op", " bytes"}, {"l_out-0", "ADD", "12"},
		{strings.Repeat("very_long_name_", 12) + "-31", "MUL_MAT", "123456"}}
	var b strings.Builder
	if err := Fit(&b, rows, width); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(lines[2], "…") || !strings.Contains(lines[2], "-31  MUL_MAT  123456") {
		t.Errorf("the long name is cut wrongly: %s", lines[2])
	}
	if !strings.HasSuffix(lines[1], "    12") || !strings.HasPrefix(lines[1], "l_out-0 ") {
		t.Errorf("columns are not aligned: %s", lines[1])
	}
}

func TestWrap(t *testing.T) {
	for want, text := range map[string]string{
		"":                     "  ",
		"one":                  "one",
		"six and\n   ten":      "six and ten",
		"six\n   längereswort": " six längereswort ",
	} {
		if got := Wrap(text, 3, 12); got != want {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
}
