package gguf

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTypesEqualGGML compares the table with what ggml says of itself.
func TestTypesEqualGGML(t *testing.T) {
	in, err := os.Open("testdata/ggml_types.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	known := make(map[Type]bool)
	for s := bufio.NewScanner(in); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		var typ Type
		var name string
		var values, bytes int64
		if _, err := fmt.Sscan(s.Text(), &typ, &name, &values, &bytes); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		known[typ] = true
		if typ.String() != name || typ.BlockValues() != values || typ.BlockBytes() != bytes {
			t.Errorf("type %d: got %v %d %d, ggml has %s %d %d", typ, typ, typ.BlockValues(), typ.BlockBytes(), name,
				values, bytes)
		}
		if got, err := ParseType(strings.ToUpper(name)); err != nil || got != typ {
			t.Errorf("ParseType(%s) = %v, %v", strings.ToUpper(name), got, err)
		}
	}
	if len(known) != 35 {
		t.Fatalf("ggml_types.txt has %d types, 35 expected", len(known))
	}
	for n := range Type(300) {
		if n.Known() != known[n] {
			t.Errorf("Known(%d) = %v", n, n.Known())
		}
	}
}

func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		typ    Type
		values int64
		want   int64
		ok     bool
	}{
		{F32, 3, 12, true}, {Q8_0, 64, 68, true}, {Q8_0, 33, 0, false}, {Q4_K, 512, 288, true}, {Q4_K, 128, 0, false},
		{Q8_0, 0, 0, true}, {F32, -1, 0, false}, {Type(4), 32, 0, false}, {Type(1 << 31), 32, 0, false},
	} {
		got, err := c.typ.RowBytes(c.values)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%v.RowBytes(%d) = %d, %v", c.typ, c.values, got, err)
		}
	}
}

func TestFileTypeNames(t *testing.T) {
	for n, want := range map[FileType]string{0: "F32", 7: "Q8_0", 15: "Q4_K_M", 32: "BF16", 999: "file type 999"} {
		if n.String() != want {
			t.Errorf("file type %d is %q, want %q", n, n, want)
		}
	}
}
