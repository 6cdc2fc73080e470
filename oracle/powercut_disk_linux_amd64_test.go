package oracle

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// A loggedDisk is a block device that logs its writes and flushes in order, as device-mapper's log-writes does: a
// loop device over the one file of a FUSE file system. A loop device turns a flush, and a write that must reach the
// medium (FUA), into fsync.
type loggedDisk struct {
	fs.Inode
	file  string // that a loop device is made of
	mount string // of the file system on it
	block int    // bytes that the disk writes whole

	mu    sync.Mutex
	image *os.File // as all writes left it
	empty string   // as mkfs left it
	log   []diskWrite
}

// diskWrite is one write; a flush has no data.
type diskWrite struct {
	at   int64
	data []byte
}

// newLoggedDisk makes a disk of 512 MiB that writes blocks of so many bytes whole, with a file system that one of the
// programs mkfs.* makes, and mounts it.
func newLoggedDisk(t *testing.T, block int, mkfs ...string) *loggedDisk {
	t.Helper()
	testenv.NeedRoot(t)
	mkfs[0] = testenv.NeedMkfs(t, mkfs[0])
	dir := t.TempDir()
	d := &loggedDisk{empty: filepath.Join(dir, "empty"), mount: filepath.Join(dir, "mount"), block: block}
	if err := os.WriteFile(d.empty, nil, 0o600); err != nil || os.Truncate(d.empty, 512<<20) != nil {
		t.Fatal("make the disk's image: ", err)
	}
	run(t, mkfs[0], append(mkfs[1:], d.empty)...)
	image := filepath.Join(dir, "image")
	run(t, "cp", "--sparse=always", d.empty, image)
	var err error
	if d.image, err = os.OpenFile(image, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.image.Close() })
	folder := filepath.Join(dir, "fuse")
	d.file = filepath.Join(folder, "disk")
	for _, name := range []string{folder, d.mount} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var root fs.Inode
	server, err := fs.Mount(folder, &root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "loggedDisk", MaxWrite: 1 << 20},
		OnAdd: func(ctx context.Context) {
			root.AddChild("disk", root.NewPersistentInode(ctx, d, fs.StableAttr{Mode: syscall.S_IFREG}), false)
		},
	})
	if err != nil {
		testenv.Beyond(t, "FUSE", err.Error())
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Errorf("unmount the disk: %v", err)
		}
	})
	mountLoop(t, d.file, d.mount)
	return d
}

// mountLoop mounts a disk's image until the test ends, or unmountLoop is called.
func mountLoop(t *testing.T, image, folder string) {
	t.Helper()
	run(t, "mount", "-o", "loop,noatime", image, folder)
	t.Cleanup(func() { unix.Unmount(folder, 0) })
}

// run runs a program that must succeed.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// Getattr, Open, Read, Write and Fsync are the file's.
func (d *loggedDisk) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o600, 512<<20
	return 0
}

func (d *loggedDisk) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (d *loggedDisk) Read(_ context.Context, _ fs.FileHandle, to []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.image.ReadAt(to, at)
	if err != nil && err != io.EOF {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(to[:n]), 0
}

func (d *loggedDisk) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, diskWrite{at, append([]byte{}, data...)})
	if _, err := d.image.WriteAt(data, at); err != nil {
		return 0, syscall.EIO
	}
	return uint32(len(data)), 0
}

func (d *loggedDisk) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, diskWrite{})
	return 0
}

// logged is how much of the log there is.
func (d *loggedDisk) logged() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// flushes are the places in the log after each flush.
func (d *loggedDisk) flushes() (all []int) {
	for i, w := range d.log {
		if w.data == nil {
			all = append(all, i+1)
		}
	}
	return all
}

// A cutImage is a disk as power cuts left it, one after another.
type cutImage struct {
	*loggedDisk
	certain *os.File // every write before done
	done    int
	n       int    // cuts so far
	after   string // the image after the newest one
}

func (d *loggedDisk) cuts(t *testing.T) *cutImage {
	t.Helper()
	c := &cutImage{loggedDisk: d}
	certain := filepath.Join(t.TempDir(), "certain")
	run(t, "cp", "--sparse=always", d.empty, certain)
	var err error
	if c.certain, err = os.OpenFile(certain, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.certain.Close() })
	return c
}

// cut makes the image after a power cut: all writes before the flush at log[:flushed] are there, and of those up to
// the cut every block with the probability keep. Flushes come in ascending order. Each image is another file: a loop
// device that is still attached to one would be mounted again, with what it has in its cache.
func (c *cutImage) cut(t *testing.T, flushed, cut int, keep float64, r *rand.Rand) (image string) {
	t.Helper()
	for ; c.done < flushed; c.done++ {
		if _, err := c.certain.WriteAt(c.log[c.done].data, c.log[c.done].at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(c.after); err != nil {
		t.Fatal(err)
	}
	c.n++
	c.after = filepath.Join(filepath.Dir(c.certain.Name()), fmt.Sprintf("after-%d", c.n))
	run(t, "cp", "--sparse=always", c.certain.Name(), c.after)
	f, err := os.OpenFile(c.after, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range c.log[flushed:cut] {
		block := c.block
		if w.at < 4096 {
			block = 4096 // ext4 relies on a superblock that is written whole
		}
		for at := 0; at < len(w.data); at += block {
			if r.Float64() < keep {
				if _, err := f.WriteAt(w.data[at:min(at+block, len(w.data))], w.at+int64(at)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return c.after
}
