package rundir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// contents is the files of a run directory: those that were recorded, which its manifest will list, and how many
// are still being written.
type contents struct {
	path     string
	reopened bool // a process that was killed may have left files
	written  atomic.Int64
	hold     sync.RWMutex // held: nothing is written but the file of tokens

	mu      sync.Mutex
	files   []File
	moved   map[string]bool // of files: those that are in object storage alone
	writing int
	sealed  bool
}

// create makes a file that gets its name when it is closed.
func (c *contents) create(name string) (io.WriteCloser, error) {
	file, err := c.open(name, partName(name))
	if err != nil {
		return nil, err
	}
	return &hashedFile{hashing: hashing{in: c, name: name, file: file, sum: sha256.New()}}, nil
}

// open makes a file, which counts as being written until closed is called. as is its name meanwhile.
func (c *contents) open(name, as string) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return nil, fmt.Errorf("make %s: %w", name, ErrSealed)
	}
	if c.reopened && leftover(as) {
		if err := os.Remove(filepath.Join(c.path, as)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
	}
	file, err := os.OpenFile(filepath.Join(c.path, as), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	c.writing++
	return file, nil
}

func (c *contents) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
}

// add records a file, in place of one of its name, whose size it returns.
func (c *contents) add(f File) (replaced int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = append(slices.DeleteFunc(c.files, func(g File) bool {
		if g.Name == f.Name {
			replaced = g.Size
		}
		return g.Name == f.Name
	}), f)
	return replaced
}

// markMoved notes that a file is in object storage alone.
func (c *contents) markMoved(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved == nil {
		c.moved = map[string]bool{}
	}
	c.moved[name] = true
}

// here lists the files that are in the directory.
func (c *contents) here() []File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.files), func(f File) bool { return c.moved[f.Name] })
}

func (c *contents) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = slices.DeleteFunc(c.files, func(f File) bool { return f.Name == name })
}

func (c *contents) list() []File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.files)
}

func (c *contents) has(name string) bool {
	return slices.ContainsFunc(c.list(), func(f File) bool { return f.Name == name })
}

func (c *contents) rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	find := func(name string) int { return slices.IndexFunc(c.files, func(f File) bool { return f.Name == name }) }
	at := find(from)
	switch {
	case c.sealed:
		return fmt.Errorf("rename %s: %w", from, ErrSealed)
	case at < 0 || find(to) >= 0:
		return fmt.Errorf("rename %s to %q: %w", from, to, ErrName)
	}
	if err := disk.rename(filepath.Join(c.path, from), filepath.Join(c.path, to)); err != nil {
		return fmt.Errorf("rename %s: %w", from, err)
	}
	c.files[at].Name = to
	return Sync(c.path)
}

// settle makes sure that all files are on the disk as they were recorded, and returns them in order.
func (c *contents) settle() ([]File, error) {
	c.mu.Lock()
	files, writing, sealed, moved := slices.Clone(c.files), c.writing, c.sealed, maps.Clone(c.moved)
	c.mu.Unlock()
	if sealed {
		return nil, ErrSealed
	}
	if writing > 0 {
		return nil, ErrOpen
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		if moved[f.Name] {
			continue
		}
		path := filepath.Join(c.path, f.Name)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() != f.Size {
			return nil, fmt.Errorf("%s: %w: %d bytes, %d were recorded", f.Name, ErrChanged, info.Size(), f.Size)
		}
		if err := Sync(path); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (c *contents) seal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
}

// hashing is a file that is hashed while it is written.
type hashing struct {
	in   *contents
	name string
	file *os.File
	sum  hash.Hash
	size int64
	done bool
}

func (f *hashing) Write(p []byte) (int, error) {
	if f.name != TokensName {
		f.in.hold.RLock()
		defer f.in.hold.RUnlock()
	}
	n, err := disk.write(f.file, p)
	f.sum.Write(p[:n])
	f.size += int64(n)
	f.in.written.Add(int64(n))
	return n, err
}

// record adds the file, as it is now, to those of the directory.
func (f *hashing) record() {
	replaced := f.in.add(File{f.name, f.size, hex.EncodeToString(f.sum.Sum(nil))})
	f.in.written.Add(-replaced)
}

// hashedFile gets its name when it is closed, unless a write failed.
type hashedFile struct {
	hashing
	err error
}

func (f *hashedFile) Write(p []byte) (int, error) {
	n, err := f.hashing.Write(p)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

func (f *hashedFile) Close() error {
	if f.done {
		return f.err
	}
	f.done = true
	defer f.in.closed()
	temporary, path := f.file.Name(), filepath.Join(f.in.path, f.name)
	if f.err == nil {
		f.err = disk.sync(f.file)
	}
	if err := f.file.Close(); f.err == nil {
		f.err = err
	}
	if f.err == nil {
		f.err = disk.rename(temporary, path)
	}
	if f.err == nil {
		if f.err = Sync(f.in.path); f.err != nil {
			os.Remove(path) // a crash may undo the renaming
		}
	}
	if f.err != nil {
		os.Remove(temporary)
		f.err = fmt.Errorf("write %s: %w", f.name, f.err)
		return f.err
	}
	f.record()
	return nil
}

// liveFile has its name while it is written, and stays whatever fails.
type liveFile struct{ hashing }

func (f *liveFile) Close() error {
	if f.done {
		return nil
	}
	f.done = true
	defer f.in.closed()
	err := errors.Join(disk.sync(f.file), f.file.Close())
	f.record()
	if err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	return nil
}
