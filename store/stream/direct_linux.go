package stream

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directBlock is the size of a direct write, and its alignment is a multiple of every disk's block.
const (
	directBlock = 1 << 20
	directAlign = 4096
)

// directFile writes past the page cache, whose pages cost more time than everything else that is done with a captured tensor: in
// whole blocks while it can, and the rest of the last one through the cache when it is synced or closed.
type directFile struct {
	file   *os.File
	block  []byte // aligned; what was not written yet
	direct bool
}

// createDirect makes a file that must not exist. Where the file system knows no direct writes, it is an ordinary one.
func createDirect(path string) (File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(path, flags|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		os.Remove(path) // some file systems refuse after they have made it
		return os.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return &directFile{file: file, block: alignedBlock(), direct: true}, nil
}

func alignedBlock() []byte {
	b := make([]byte, directBlock+directAlign)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (directAlign - 1)
	return b[skip : skip : skip+directBlock]
}

func (f *directFile) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, cap(f.block)-len(f.block))
		f.block = append(f.block, p[done:done+n]...)
		done += n
		if len(f.block) == cap(f.block) {
			if err := f.flush(); err != nil {
				return done - n, err
			}
		}
	}
	return done, nil
}

// flush writes the block. A file system that takes the flag and refuses the write gets it through the cache.
func (f *directFile) flush() error {
	_, err := f.file.Write(f.block)
	if errors.Is(err, unix.EINVAL) && f.direct {
		if err = f.indirect(); err == nil {
			_, err = f.file.Write(f.block)
		}
	}
	if err == nil {
		f.block = f.block[:0]
	}
	return err
}

// indirect makes further writes go through the cache.
func (f *directFile) indirect() error {
	f.direct = false
	flags, err := unix.FcntlInt(f.file.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.file.Fd(), unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	return err
}

// rest writes what fills no block.
func (f *directFile) rest() error {
	if len(f.block) == 0 {
		return nil
	}
	if f.direct {
		if err := f.indirect(); err != nil {
			return err
		}
	}
	return f.flush()
}

// Sync makes everything written last. Writes after it go through the cache.
func (f *directFile) Sync() error {
	return errors.Join(f.rest(), f.file.Sync())
}

// Close writes what is left and closes the file.
func (f *directFile) Close() error {
	return errors.Join(f.rest(), f.file.Close())
}
