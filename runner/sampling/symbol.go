package sampling

import (
	"cmp"
	"debug/elf"
	"slices"
)

// Symbols names the functions of programs and libraries: of each file once its symbol tables are read, .symtab and .dynsym. It is for one goroutine.
type Symbols struct {
	files map[string]*symbolFile
}

// symbolFile is what is known of a file. Of one that is no ELF object, or has no symbols, that is nothing.
type symbolFile struct {
	loaded  []elf.ProgHeader
	symbols []symbol // by value
}

type symbol struct {
	value, size uint64
	name        string
}

// maxSymbolFiles bounds how many files are remembered.
const maxSymbolFiles = 256

// At is the name of the function at a place of a file, "" where none is known.
func (s *Symbols) At(path string, offset uint64) string {
	if path == "" {
		return ""
	}
	f, ok := s.files[path]
	if !ok {
		if s.files == nil || len(s.files) == maxSymbolFiles {
			s.files = map[string]*symbolFile{}
		}
		f = readSymbols(path)
		s.files[path] = f
	}
	return f.at(offset)
}

func readSymbols(path string) *symbolFile {
	f := &symbolFile{}
	file, err := elf.Open(path)
	if err != nil {
		return f
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD {
			f.loaded = append(f.loaded, p.ProgHeader)
		}
	}
	full, _ := file.Symbols()
	dynamic, _ := file.DynamicSymbols()
	for _, all := range [][]elf.Symbol{full, dynamic} {
		for _, sym := range all {
			if kind := elf.ST_TYPE(sym.Info); (kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC) && sym.Value != 0 && sym.Section != elf.SHN_UNDEF && sym.Name != "" {
				f.symbols = append(f.symbols, symbol{sym.Value, sym.Size, sym.Name})
			}
		}
	}
	// Of several names for one place the longest function counts, then the first name.
	slices.SortFunc(f.symbols, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	f.symbols = slices.CompactFunc(f.symbols, func(a, b symbol) bool { return a.value == b.value })
	return f
}

// at finds the function whose code holds a place of the file. A function without a size has one instruction that is known to be its own.
func (f *symbolFile) at(offset uint64) string {
	for _, p := range f.loaded {
		if offset < p.Off || offset >= p.Off+p.Filesz {
			continue
		}
		value := p.Vaddr + offset - p.Off
		i, found := slices.BinarySearchFunc(f.symbols, value, func(s symbol, value uint64) int { return cmp.Compare(s.value, value) })
		if !found {
			i--
		}
		if i >= 0 && value < f.symbols[i].value+max(f.symbols[i].size, 1) {
			return f.symbols[i].name
		}
	}
	return ""
}
