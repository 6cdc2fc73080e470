package vm

import (
	"bytes"
	"fmt"
	"testing"
)

// TestArchive: entries begin at multiples of four bytes, and are found again by the lengths in their headers.
func TestArchive(t *testing.T) {
	var a archive
	a.add("dev", folder, nil, 0, 0)
	a.add("dev/console", character, nil, 5, 1)
	a.add("init", program, []byte("12345"), 0, 0)
	text := a.bytes()
	var got []string
	for at := 0; at < len(text); {
		if !bytes.HasPrefix(text[at:], []byte("070701")) || at%4 != 0 {
			t.Fatalf("no entry at %d", at)
		}
		var f [13]int
		for i := range f {
			if _, err := fmt.Sscanf(string(text[at+6+8*i:at+14+8*i]), "%x", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		name := at + 110
		data := (name + f[11] + 3) &^ 3
		got = append(got, fmt.Sprintf("%s %o %d:%d %s", text[name:name+f[11]-1], f[1], f[9], f[10],
			text[data:data+f[6]]))
		at = (data + f[6] + 3) &^ 3
	}
	want := []string{"dev 40755 0:0 ", "dev/console 20600 5:1 ", "init 100755 0:0 12345", "TRAILER!!! 0 0:0 "}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}
