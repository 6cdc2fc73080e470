package tensors

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTableFitsWidth(t *testing.T) {
	tab := newTable(column{"tensor", true}, column{"op", true}, column{"bytes", false})
	tab.add("l_out-0", "ADD", "12")
	tab.add(strings.Repeat("very_long_name_", 12)+"-31", "MUL_MAT", "123456")
	var b strings.Builder
	if err := tab.writeTo(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > Width {
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
