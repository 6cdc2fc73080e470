package sample

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// debugFolder is where distributions put files of symbols that were taken out of programs and libraries.
const debugFolder = "/usr/lib/debug"

// separate opens the file that has the symbols of a stripped object, as gdb finds it: by the object's build ID, or by
// the name in the object's debug link. It returns nil if no file belongs to exactly this object. root is what stands
// before all paths.
func separate(object *elf.File, root, path string) *elf.File {
	id := buildID(object)
	if len(id) > 1 {
		name := hex.EncodeToString(id)
		if f := sameObject(root+filepath.Join(debugFolder, ".build-id", name[:2], name[2:]+".debug"), id, 0); f != nil {
			return f
		}
	}
	name, sum := debugLink(object)
	if name == "" || name != filepath.Base(name) {
		return nil
	}
	folder := filepath.Dir(path)
	for _, at := range []string{filepath.Join(folder, name), filepath.Join(folder, ".debug", name),
		filepath.Join(debugFolder, folder, name)} {
		if at == path {
			continue
		}
		if f := sameObject(root+at, id, sum); f != nil {
			return f
		}
	}
	return nil
}

// sameObject opens a file of symbols if it is that of an object: with its build ID, or where the object has none with
// the checksum in its debug link.
func sameObject(path string, id []byte, sum uint32) *elf.File {
	if statOf(path) == (fileStat{}) || len(id) == 0 && checksum(path) != sum {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	if len(id) > 0 && !bytes.Equal(buildID(f), id) {
		f.Close()
		return nil
	}
	return f
}

// checksum is the CRC-32 of a file, 0 where it cannot be read.
func checksum(path string) uint32 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, file); err != nil {
		return 0
	}
	return sum.Sum32()
}

// ntGNUBuildID is the type of a note with a build ID.
const ntGNUBuildID = 3

// buildID is the number that a linker gave an object, nil where it gave none.
func buildID(f *elf.File) []byte {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE || s.Size > 1<<16 {
			continue
		}
		data, err := s.Data()
		for err == nil && len(data) >= 12 {
			name, desc, kind := f.ByteOrder.Uint32(data), f.ByteOrder.Uint32(data[4:]), f.ByteOrder.Uint32(data[8:])
			from := 12 + (uint64(name)+3)&^3
			end := from + uint64(desc)
			if end > uint64(len(data)) {
				break
			}
			if kind == ntGNUBuildID && bytes.Equal(data[12:12+name], []byte("GNU\x00")) {
				return data[from:end]
			}
			data = data[min((end+3)&^3, uint64(len(data))):]
		}
	}
	return nil
}

// debugLink is the name of the file with an object's symbols, and that file's checksum, as the object's section
// .gnu_debuglink has them.
func debugLink(f *elf.File) (name string, sum uint32) {
	s := f.Section(".gnu_debuglink")
	if s == nil || s.Size > 1<<16 {
		return "", 0
	}
	data, err := s.Data()
	if err != nil {
		return "", 0
	}
	name, _, found := strings.Cut(string(data), "\x00")
	at := (len(name) + 1 + 3) &^ 3
	if !found || at+4 > len(data) {
		return "", 0
	}
	return name, f.ByteOrder.Uint32(data[at:])
}
