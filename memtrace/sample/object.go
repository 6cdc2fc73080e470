package sample

import (
	"debug/elf"
	"os"
	"time"
)

// object is what is known of a mapped file. Nothing if it is not an ELF object.
type object struct {
	root, path string
	segments   []elf.ProgHeader // that are loaded; none: it is not an ELF object
	stat       fileStat
	read       bool // the symbols were
	code, data symbols
}

// fileStat distinguishes a file from a later one with the same name.
type fileStat struct {
	bytes    int64
	modified time.Time
}

// objects are mapped files, each of which is opened once, and once more when somebody asks for its symbols. They
// are for one goroutine.
type objects struct {
	files   map[string]*object
	symbols int // of all files together
}

// Bounds of what is remembered. What is forgotten is read again when it is asked for.
const (
	maxObjects = 1 << 14
	maxSymbols = 1 << 21
)

// open returns the file at a path below the process's root directory.
func (s *objects) open(root, path string) *object {
	if o := s.files[root+path]; o != nil {
		return o
	}
	if s.files == nil || len(s.files) == maxObjects {
		s.files, s.symbols = map[string]*object{}, 0
	}
	o := &object{root: root, path: path, stat: statOf(root + path)}
	s.files[root+path] = o
	o.open()
	return o
}

// renew forgets a file if there is another one at its path by now.
func (s *objects) renew(root, path string) {
	if o := s.files[root+path]; o != nil && o.stat != statOf(root+path) {
		s.symbols -= o.count()
		delete(s.files, root+path)
	}
}

// statOf is the state of a regular file, which can be opened without side effects; zero: there is none.
func statOf(path string) fileStat {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return fileStat{}
	}
	return fileStat{info.Size(), info.ModTime()}
}

// open reads which parts of the file are loaded. Only files are opened, for to open a device may do something.
func (o *object) open() {
	if o.stat == (fileStat{}) {
		return
	}
	file, err := elf.Open(o.root + o.path)
	if err != nil {
		return
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Memsz > 0 && p.Vaddr+p.Memsz > p.Vaddr && p.Off+p.Filesz >= p.Off {
			o.segments = append(o.segments, p.ProgHeader)
		}
	}
}

// named is the object with its symbols.
func (s *objects) named(o *object) *object {
	if o.read || len(o.segments) == 0 {
		return o
	}
	o.read = true
	file, err := elf.Open(o.root + o.path)
	if err != nil {
		return o
	}
	defer file.Close()
	files := []*elf.File{file}
	if file.Section(".symtab") == nil {
		if debug := separate(file, o.root, o.path); debug != nil {
			defer debug.Close()
			files = append(files, debug)
		}
	}
	o.code, o.data = readSymbols(files...)
	if s.symbols += o.count(); s.symbols > maxSymbols {
		for _, other := range s.files {
			if other != o {
				other.read, other.code, other.data = false, symbols{}, symbols{}
			}
		}
		s.symbols = o.count()
	}
	return o
}

func (o *object) count() int { return len(o.code.all) + len(o.data.all) }

// function is the one whose instructions lie at a place of the file, "" where none is known.
func (o *object) function(offset uint64) string {
	for _, p := range o.segments {
		if offset >= p.Off && offset < p.Off+p.Filesz {
			if name := o.code.at(p.Vaddr+offset-p.Off, 1); name != "" {
				return name
			}
		}
	}
	return ""
}

// variable is the one that holds size bytes from an address of the object's own on, "" where none is known.
func (o *object) variable(value, size uint64) string { return o.data.at(value, size) }

// holds reports whether one of the object's own addresses is loaded.
func (o *object) holds(value uint64) bool {
	for _, p := range o.segments {
		if value >= p.Vaddr && value < p.Vaddr+p.Memsz {
			return true
		}
	}
	return false
}
