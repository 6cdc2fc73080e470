package kernels

import (
	"bytes"
	"fmt"
	"testing"
)

// archive makes an archive of files in cpio's format "newc", as the kernel unpacks it at its start
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	b     bytes.Buffer
	inode int
}

// What an entry is, with its rights (inode(7)).
const (
	folder    = 0o040755
	program   = 0o100755
	character = 0o020600
)

// add adds an entry; major and minor are those of a device.
func (a *archive) add(name string, mode int, data []byte, major, minor int) {
	a.inode++
	a.b.WriteString("070701")
	for _, field := range []int{a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(&a.b, "%08X", field)
	}
	a.b.WriteString(name)
	a.b.WriteByte(0)
	a.pad()
	a.b.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.b.Len()%4 != 0 {
		a.b.WriteByte(0)
	}
}

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.add("TRAILER!!!", 0, nil, 0, 0)
	return a.b.Bytes()
}

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
