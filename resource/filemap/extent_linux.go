package filemap

import (
	"fmt"
	"os"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is where a part of a file lies on the device of its file system, in bytes.
type extent struct{ physical, logical, length uint64 }

// Of linux/fiemap.h.
const (
	fiemapRequest = 0xc020660b
	fiemapLast    = 1
	// fiemapElsewhere are flags of extents whose bytes do not lie as they are at their place: unknown, delayed,
	// encoded, inline, packed.
	fiemapElsewhere = 0x2 | 0x4 | 0x8 | 0x80 | 0x200 | 0x400
)

type fiemapExtent struct {
	Logical, Physical, Length uint64
	_                         [2]uint64
	Flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	Start, Length uint64
	Flags, Mapped uint32
	Count, _      uint32
	Extents       [256]fiemapExtent
}

// extentsOf lists where a file lies, by physical place. A file system that cannot say so is an error.
func extentsOf(path string) ([]extent, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []extent
	for m := (fiemap{Length: 1<<64 - 1}); ; {
		m.Count, m.Mapped = uint32(len(m.Extents)), 0
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapRequest, uintptr(unsafe.Pointer(&m))); errno != 0 {
			return nil, fmt.Errorf("where %s lies on its disk: %w", path, errno)
		}
		last := m.Mapped == 0
		for _, e := range m.Extents[:m.Mapped] {
			if e.Flags&fiemapElsewhere == 0 {
				all = append(all, extent{e.Physical, e.Logical, e.Length})
			}
			last = last || e.Flags&fiemapLast != 0
			m.Start = e.Logical + e.Length
		}
		if last {
			break
		}
		m.Length = 1<<64 - 1 - m.Start
	}
	sort.Slice(all, func(i, j int) bool { return all[i].physical < all[j].physical })
	return all, nil
}
