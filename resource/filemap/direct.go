package filemap

import (
	"sort"
	"time"
)

const sectorBytes = 512

// extents are where a file lies, as last asked.
type extents struct {
	all  []extent
	read time.Time
}

// direct finds the file of a request that went past the page cache, by where the known files of its device lie. Of a
// file system on a mapped device (dm, md) the requests are those of the disks below, where its files are not known. It
// returns the request's offset in the file.
func (f *Files) direct(e *Event) (offset uint64, ok bool) {
	at := e.At * sectorBytes
	for key, n := range f.files {
		if key.Dev != e.BlockDev || !n.known || n.open == "" {
			continue
		}
		x, found := f.lies(n, at)
		if !found {
			continue
		}
		offset = x.logical + (at - x.physical)
		bytes := min(e.Bytes, x.logical+x.length-offset)
		if bytes < e.Bytes {
			e.Flags |= Partly
		}
		e.File, e.First, e.Last = key, offset/f.Page, (offset+bytes-1)/f.Page
		return offset, true
	}
	return 0, false
}

// lies finds the extent of a file that holds a byte of its device. A file that is not found may have been written
// since: it is asked again, but not often.
func (f *Files) lies(n *file, at uint64) (extent, bool) {
	for {
		i := sort.Search(len(n.lies.all), func(i int) bool { return n.lies.all[i].physical+n.lies.all[i].length > at })
		if i < len(n.lies.all) && n.lies.all[i].physical <= at {
			return n.lies.all[i], true
		}
		if now := f.now(); n.lies.read.IsZero() || now.Sub(n.lies.read) > 10*time.Second {
			n.lies.read = now
			if all, err := extentsOf(n.open); err == nil {
				n.lies.all = all
				continue
			}
		}
		return extent{}, false
	}
}
