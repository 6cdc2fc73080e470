package vm

import (
	"bytes"
	"fmt"
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
