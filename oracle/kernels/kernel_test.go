package kernels

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A kernel is what scripts/vm-kernels has unpacked.
type kernel struct {
	Name    string            // its version
	image   string            // what is booted
	modules map[string]string // files of modules by their name, with _ in place of -
}

// wanted are the modules that the guest needs: the machine's bus and disk, the host's files, its own file system,
// and what tests use. What is not there is part of the kernel.
var wanted = []string{"virtio_pci", "virtio_blk", "9p", "9pnet_virtio", "crc32c_generic", "crc32c_cryptoapi", "ext4",
	"loop"}

// find returns the kernels below a folder, a folder for each.
func find(dir string) ([]kernel, error) {
	folders, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var all []kernel
	for _, folder := range folders {
		k := kernel{Name: filepath.Base(folder), image: filepath.Join(folder, "vmlinuz"), modules: map[string]string{}}
		if _, err := os.Stat(k.image); err != nil {
			return nil, fmt.Errorf("%w; remove %s and run scripts/vm-kernels again", err, folder)
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.ko"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			k.modules[moduleName(file)] = file
		}
		all = append(all, k)
	}
	return all, nil
}

func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// order returns the files of the wanted modules, each behind those that it depends on.
func (k *kernel) order() ([]string, error) {
	var all []string
	var add func(name string) error
	add = func(name string) error {
		file, ok := k.modules[name]
		if !ok || slices.Contains(all, file) {
			return nil
		}
		needs, err := depends(file)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		all = append(all, file)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// depends reads from a module's .modinfo which others it needs, those included that it asks for softly.
func depends(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", file, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read module %s: it has no .modinfo", file)
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", file, err)
	}
	var names []string
	for field := range bytes.SplitSeq(text, []byte{0}) {
		if list, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(list) > 0 {
			names = append(names, strings.Split(strings.ReplaceAll(string(list), "-", "_"), ",")...)
		}
	}
	return names, nil
}
