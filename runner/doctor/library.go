package doctor

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A library is what a shared object shows of itself.
type library struct {
	path    string
	defines map[string]elf.Symbol
	file    *elf.File
}

// open reads the symbols of a shared object. The caller closes its file.
func open(path string) (*library, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	l := &library{path: path, defines: map[string]elf.Symbol{}, file: file}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			l.defines[s.Name] = s
		}
	}
	return l, nil
}

// numbers reads n words of 32 bits that a symbol stands for.
func (l *library) numbers(name string, n int) ([]uint32, error) {
	s, ok := l.defines[name]
	if !ok || int(s.Section) >= len(l.file.Sections) || s.Size < uint64(4*n) {
		return nil, fmt.Errorf("%s has no %s", l.path, name)
	}
	section := l.file.Sections[s.Section]
	bytes := make([]byte, 4*n)
	if _, err := section.ReadAt(bytes, int64(s.Value-section.Addr)); err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", name, l.path, err)
	}
	out := make([]uint32, n)
	_, err := binary.Decode(bytes, l.file.ByteOrder, out)
	return out, err
}

// glibc is the newest version of the C library's interface that an object defines, such as 2.43.
func glibc(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	versions, err := file.DynamicVersions()
	if err != nil {
		return "", err
	}
	newest := -1
	for _, v := range versions {
		if minor, ok := strings.CutPrefix(v.Name, "GLIBC_2."); ok {
			if n, err := strconv.Atoi(minor); err == nil {
				newest = max(newest, n)
			}
		}
	}
	if newest < 0 {
		return "", fmt.Errorf("%s names no version of glibc", path)
	}
	return fmt.Sprintf("2.%d", newest), nil
}

// sameFolder reports whether two paths lead to one folder.
func sameFolder(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
