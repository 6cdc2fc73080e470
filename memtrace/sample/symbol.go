package sample

import (
	"cmp"
	"debug/elf"
	"slices"
)

// symbol is a name of an object's addresses.
type symbol struct {
	value, size uint64
	name        string
}

// symbols are those of one kind, by value. One may lie in another.
type symbols struct {
	all   []symbol
	reach []uint64 // the highest end of this one and of those before it
}

// newSymbols puts symbols in order. Of several names for one place the longest counts, then the first name.
func newSymbols(all []symbol) symbols {
	slices.SortFunc(all, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	s := symbols{all: slices.CompactFunc(all, func(a, b symbol) bool { return a.value == b.value })}
	s.reach = make([]uint64, len(s.all))
	end := uint64(0)
	for i, one := range s.all {
		end = max(end, one.end())
		s.reach[i] = end
	}
	return s
}

// end is past the symbol's last byte. What has no size has one byte that is known to be its own.
func (s *symbol) end() uint64 { return s.value + max(s.size, 1) }

// at is the innermost symbol that holds size bytes from a value on, "" where there is none.
func (s *symbols) at(value, size uint64) string {
	i, found := slices.BinarySearchFunc(s.all, value, func(one symbol,
		value uint64) int {
		return cmp.Compare(one.value, value)
	})
	if !found {
		i--
	}
	end := value + max(size, 1)
	for ; i >= 0 && s.reach[i] >= end; i-- {
		if s.all[i].end() >= end {
			return s.all[i].name
		}
	}
	return ""
}

// readSymbols reads the functions and the variables that the symbol tables of a file name, .symtab and .dynsym.
func readSymbols(files ...*elf.File) (code, data symbols) {
	var functions, variables []symbol
	for _, file := range files {
		full, _ := file.Symbols()
		dynamic, _ := file.DynamicSymbols()
		for _, all := range [][]elf.Symbol{full, dynamic} {
			for _, sym := range all {
				if sym.Value == 0 || sym.Name == "" || sym.Section == elf.SHN_UNDEF {
					continue
				}
				one := symbol{sym.Value, sym.Size, sym.Name}
				switch kind := elf.ST_TYPE(sym.Info); {
				case kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC:
					functions = append(functions, one)
				case kind == elf.STT_OBJECT && sym.Size > 0 || kind == elf.STT_NOTYPE && sym.Size > 0 &&
					isData(file, sym.Section):
					variables = append(variables, one)
				}
			}
		}
	}
	return newSymbols(functions), newSymbols(variables)
}

// isData reports whether a section holds variables or constants of every process that loads the file. Those of threads
// have no addresses of their own.
func isData(file *elf.File, section elf.SectionIndex) bool {
	if int(section) >= len(file.Sections) {
		return false
	}
	flags := file.Sections[section].Flags
	return flags&elf.SHF_ALLOC != 0 && flags&(elf.SHF_EXECINSTR|elf.SHF_TLS) == 0
}
