package filemap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

// Kinds of memory that belongs to no file.
const (
	memoryAnonymous = "anonymous" // stacks of threads and large allocations among it
	memoryHeap      = "heap"
	memoryStack     = "stack"
	memoryShared    = "shared"  // shared memory, memfd
	memoryPrivate   = "private" // a file's page of which the process made its own
)

// A Place is a tensor, another part of a GGUF, or another file.
type Place struct {
	File   string
	Tensor string // or resource.PartHeader, PartPadding; "" for a file that is not a GGUF
	Layer  int    // -1: none
}

// A Hit is what an event was about.
type Hit struct {
	Place  int    // index into Files.Places, -1: none
	Memory string // of a fault on memory that is not a file's: its kind
	Offset uint64 // bytes in the file
	Unsure bool   // the file is known by its number alone; later it may be known
}

// Files resolves events to files and tensors. It is for one goroutine.
type Files struct {
	// Proc is the folder of processes, /proc.
	Proc string
	// Page is the size of a page in bytes.
	Page uint64
	// Again is how long an unknown file or address does not make it read a process's mappings again.
	Again time.Duration
	// ByMapping resolves a fault without a file by the process's mappings. Where a page may be the process's private
	// copy, it stays memory of no file. It is for kernels before 6.12, which do not report the page of a file that a
	// fault looked up.
	ByMapping bool

	places []Place
	files  map[fileKey]*file
	procs  map[uint32]*process
	now    func() time.Time
}

// file is one file.
type file struct {
	path            string
	open            string // by which it can be opened here
	lies            extents
	known           bool // path is that of the file, not its number
	model           *gguf.File
	tensors         map[*gguf.Tensor]int
	header, padding int // places, -1: not there yet
	whole           int
}

// process is what is known of a process.
type process struct {
	maps []mapping
	read time.Time
}

// newFiles makes a Files that knows none.
func newFiles() *Files {
	return &Files{
		Proc: "/proc", Page: uint64(os.Getpagesize()), Again: every, files: map[fileKey]*file{},
		procs: map[uint32]*process{}, now: time.Now,
	}
}

// Place returns what a Hit's number stands for.
func (f *Files) Place(i int) *Place { return &f.places[i] }

// AddPath makes a file known by its path, and returns its key. A model that is known keeps its name and places.
func (f *Files) AddPath(path string) (fileKey, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return fileKey{}, err
	}
	key, err := keyOf(path)
	if err != nil {
		return fileKey{}, err
	}
	if n := f.files[key]; n == nil || n.model == nil {
		f.add(key, path, path)
	}
	return key, nil
}

// add makes a file known. Where it has another name, or is seen through another process's root, open is what it is
// opened by.
func (f *Files) add(key fileKey, path, open string) *file {
	n := &file{path: path, open: open, known: true, header: -1, padding: -1, whole: -1}
	if strings.HasSuffix(strings.ToLower(path), ".gguf") {
		if model, err := gguf.Open(open); err == nil {
			n.model, n.tensors = model, map[*gguf.Tensor]int{}
		}
	}
	if before := f.files[key]; before != nil && before.whole >= 0 {
		f.places[before.whole].File = path // it was counted by its number
		if n.model == nil {
			n.whole = before.whole
		}
	}
	f.files[key] = n
	return n
}

func (f *Files) addPlace(p Place) int {
	f.places = append(f.places, p)
	return len(f.places) - 1
}

// Resolve finds out what an event was about. A request that went past the page cache gets the file's range that it
// was found in.
func (f *Files) Resolve(e *Event) Hit {
	if e.File.Dev == 0 {
		if e.Kind == Fault {
			return f.mapped(e)
		}
		if e.Kind == Request {
			if offset, ok := f.direct(e); ok {
				return Hit{Place: f.at(f.files[e.File], offset), Offset: offset}
			}
		}
		return Hit{Place: -1}
	}
	n := f.find(e)
	offset := f.offset(e)
	return Hit{Place: f.at(n, offset), Offset: offset, Unsure: !n.known}
}

// at returns the place of a byte of a file.
func (f *Files) at(n *file, offset uint64) int {
	at, part := &n.whole, ""
	if n.model != nil {
		t, ok := n.model.At(int64(offset))
		switch {
		case ok:
			i, seen := n.tensors[t]
			if !seen {
				i = f.addPlace(Place{File: n.path, Tensor: t.Name, Layer: resource.TensorLayer(t.Name)})
				n.tensors[t] = i
			}
			return i
		case int64(offset) < n.model.DataOffset:
			at, part = &n.header, resource.PartHeader
		default:
			at, part = &n.padding, resource.PartPadding
		}
	}
	if *at < 0 {
		*at = f.addPlace(Place{File: n.path, Tensor: part, Layer: -1})
	}
	return *at
}

// spread calls f for every place that a range of a file has bytes in, with their number. Bytes after the file's
// end are padding.
func (f *Files) spread(key fileKey, offset, bytes uint64, each func(place int, bytes uint64)) {
	n := f.files[key]
	if n == nil {
		return
	}
	if n.model == nil {
		each(f.at(n, offset), bytes)
		return
	}
	for end := offset + bytes; offset < end; {
		next := end
		if t, ok := n.model.At(int64(offset)); ok {
			next = uint64(t.End())
		} else if t, ok := n.model.Next(int64(offset)); ok {
			next = uint64(t.Offset)
			if d := uint64(n.model.DataOffset); offset < d {
				next = d
			}
		}
		next = min(max(next, offset+1), end)
		each(f.at(n, offset), next-offset)
		offset = next
	}
}

// find returns the file of an event. Where it is not known, the process's mappings and open files are looked at.
func (f *Files) find(e *Event) *file {
	n := f.files[e.File]
	if n != nil && n.known {
		return n
	}
	if p := f.process(e.PID, true); p != nil {
		if m := p.find(e.At); e.Kind == Fault && m != nil && m.named() &&
			(m.key == e.File || m.key.Dev != e.File.Dev && m.offset+(e.At-m.start) >= e.First*f.Page &&
				m.offset+(e.At-m.start) < (e.Last+1)*f.Page) {
			// Some file systems report another device to a process than the kernel uses. Of the same device, it is
			// another file, which was mapped there since.
			return f.add(e.File, m.path, seen(f.Proc, e.PID, m.path))
		}
		if now := f.files[e.File]; now != nil && now.known {
			return now
		}
	}
	if n == nil {
		n = &file{path: fmt.Sprintf("dev:%d:%d/ino:%d", e.File.Dev>>20, e.File.Dev&(1<<20-1), e.File.Ino), header: -1,
			padding: -1, whole: -1}
		f.files[e.File] = n
	}
	return n
}

// seen is the path by which this process can open what another one has under a path.
func seen(proc string, pid uint32, path string) string {
	return filepath.Join(proc, strconv.Itoa(int(pid)), "root", path)
}

// offset is the byte of the file that an event is about: of a fault that which was touched, else the first.
func (f *Files) offset(e *Event) uint64 {
	first := e.First * f.Page
	if e.Kind != Fault {
		return first
	}
	inside := e.At % f.Page
	if e.Flags&Slow != 0 || e.First == e.Last {
		return first + inside
	}
	// Pages around it were mapped; which of them was touched the mapping says.
	if p := f.process(e.PID, false); p != nil {
		for range 2 {
			if m := p.find(e.At); m != nil && m.named() {
				if at := m.offset + (e.At - m.start); at/f.Page >= e.First && at/f.Page <= e.Last {
					return at
				}
			}
			if p = f.process(e.PID, true); p == nil {
				break
			}
		}
	}
	// The kernel takes the aligned 16 pages, unless the mapping begins within them.
	return min(e.First+e.At/f.Page%16, e.Last)*f.Page + inside
}

// mapped resolves a fault of which no file is known by the mapping that was touched.
func (f *Files) mapped(e *Event) Hit {
	p := f.process(e.PID, false)
	if p == nil {
		return Hit{Place: -1, Memory: memoryAnonymous}
	}
	m := p.find(e.At)
	if m == nil {
		if p = f.process(e.PID, true); p != nil {
			m = p.find(e.At)
		}
	}
	switch {
	case m == nil:
		return Hit{Place: -1, Memory: memoryAnonymous}
	case f.ByMapping && m.named() && !m.copies:
		n, offset := f.files[m.key], m.offset+(e.At-m.start)
		if n == nil || !n.known {
			n = f.add(m.key, m.path, seen(f.Proc, e.PID, m.path))
		}
		return Hit{Place: f.at(n, offset), Offset: offset}
	}
	return Hit{Place: -1, Memory: m.kind()}
}

// process returns a process's mappings, read anew if asked for, unless they were just read; nil where they cannot
// be read and never were.
func (f *Files) process(pid uint32, anew bool) *process {
	p := f.procs[pid]
	if p != nil && (!anew || f.now().Sub(p.read) < f.Again) {
		return p
	}
	if p == nil {
		p = &process{}
		f.procs[pid] = p
	}
	p.read = f.now()
	dir := filepath.Join(f.Proc, strconv.Itoa(int(pid)))
	if text, err := os.ReadFile(filepath.Join(dir, "maps")); err == nil {
		p.maps = parseMaps(string(text))
	} // else what was known of it stays
	for i := range p.maps {
		if m := &p.maps[i]; m.named() {
			f.setPath(m.key, m.path, pid)
		}
	}
	f.openFiles(filepath.Join(dir, "fd"), pid)
	return p
}

// openFiles learns of the files that a process has open: not every file that is read is mapped.
func (f *Files) openFiles(dir string, pid uint32) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		path, err := os.Readlink(name)
		if err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") ||
			strings.HasPrefix(path, "/memfd:") {
			continue
		}
		if key, err := keyOf(name); err == nil {
			f.setPath(key, path, pid)
		}
	}
}

func (f *Files) setPath(key fileKey, path string, pid uint32) {
	if n := f.files[key]; n == nil || !n.known {
		f.add(key, path, seen(f.Proc, pid, path))
	}
}
