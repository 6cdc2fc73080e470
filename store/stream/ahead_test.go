//go:build linux

package stream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// tightDisk is a disk of so many bytes, which its files take as they grow, and keep ahead.
type tightDisk struct {
	mu   sync.Mutex
	free int64
	kept int // times that room was kept
}

// tightFile is one of its files.
type tightFile struct {
	disk *tightDisk
	data []byte
	end  int64 // of what it holds of the disk
}

// take gets what the file needs to hold so many bytes, or as many of them as there are.
func (f *tightFile) take(end int64) (got int64, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	more := max(0, end-f.end)
	if more > f.disk.free {
		end, more, err = f.end+f.disk.free, f.disk.free, syscall.ENOSPC
	}
	f.disk.free -= more
	f.end = max(f.end, end)
	return end, err
}

func (f *tightFile) put(p []byte, at int64) (int, error) {
	end, err := f.take(at + int64(len(p)))
	n := int(end - at)
	f.data = append(f.data[:at], p[:n]...)
	return n, err
}

func (f *tightFile) Write(p []byte) (int, error) { return f.put(p, int64(len(f.data))) }
func (f *tightFile) Sync() error                 { return nil }
func (f *tightFile) Close() error                { return nil }

// tightBlocks is a tightFile that takes blocks and keeps room.
type tightBlocks struct{ *tightFile }

func (f tightBlocks) WriteBlocks(p []byte, at int64) error { return f.WriteTail(p, at) }

func (f tightBlocks) WriteTail(p []byte, at int64) error {
	_, err := f.put(p, at)
	return err
}

func (f tightBlocks) Allocate(at, n int64) error {
	f.disk.kept++
	_, err := f.take(at + n)
	return err
}

func (f tightBlocks) Trim() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.free += f.end - int64(len(f.data))
	f.end = int64(len(f.data))
	return nil
}

func (f tightBlocks) Free() (int64, error) { return 1 << 40, nil } // hides how full it is

// TestAheadOnFullDisk: room that is kept ahead takes nothing away. The writer fails when the bytes themselves do
// not fit any more, whichever of the two files it is that asks for the last.
func TestAheadOnFullDisk(t *testing.T) {
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 200)
	for size := int64(200_000); size < 300_000; size += 7_001 {
		d := &tightDisk{free: size}
		s, x := &tightFile{disk: d}, &tightFile{disk: d}
		w, err := New(tightBlocks{s}, x, Options{Workers: 1, Ahead: 1 << 20, MemoryBound: 1}) // more than the disk has
		if err != nil {
			t.Fatal(err)
		}
		for i := uint64(0); err == nil; i++ {
			if err = w.Append(&Packet{Name: fmt.Sprint("a tensor ", i), SrcType: ggmlI32, Exec: i}, data,
				nil); err == nil {
				err = errors.Join(w.Commit(), w.Flush())
			}
		}
		if !errors.Is(err, syscall.ENOSPC) || w.Close() == nil {
			t.Fatalf("disk of %d bytes: %v", size, err)
		}
		if used := int64(len(s.data) + len(x.data)); used < size || d.free != 0 || d.kept == 0 {
			t.Errorf("disk of %d bytes: full with %d, %d free, room kept %d times", size, used, d.free, d.kept)
		}
		if r := open(t, s.data, x.data); r.Info().Totals.Commits == 0 {
			t.Errorf("disk of %d bytes: nothing can be read", size)
		}
	}
}

// TestAheadSteps: room is kept in steps of what may be kept, no more than a share of what is free, and none that
// holds hardly more than what is written; what is free is not asked for otherwise.
func TestAheadSteps(t *testing.T) {
	for _, c := range []struct {
		name       string
		most, free int64
		steps      []string
	}{
		{"as asked for", 256 << 10, 1 << 40, []string{"0+262144", "262144+262144"}},
		{"a share of what is free", 1 << 30, 64 * 100_000,
			[]string{"0+98304", "98304+98304", "196608+98304", "294912+98304"}},
		{"too little to be of use", 1 << 30, 64 * 60_000, nil},
		{"none", 0, 1 << 40, nil},
		{"a disk that refuses", 256 << 10, -1, []string{"0+262144"}},
	} {
		f := &stepFile{free: c.free}
		a := newAhead(f, c.most)
		for at := int64(0); at < 384<<10; at += 32 << 10 {
			a.prepare(at, 32<<10)
			a.wrote(at + 32<<10)
			if left := a.left(); left < 0 || left > c.most {
				t.Errorf("%s: %d bytes are left at %d", c.name, left, at)
			}
		}
		if fmt.Sprint(f.steps) != fmt.Sprint(c.steps) {
			t.Errorf("%s: %v, want %v", c.name, f.steps, c.steps)
		}
		if given := a.release(); given != (c.free > 0 && len(c.steps) > 0) || a.left() != 0 || a.release() ||
			f.trims > 1 {
			t.Errorf("%s: given back %v, %d left, %d times", c.name, given, a.left(), f.trims)
		}
	}
}

// stepFile notes what it is asked for. With free below 0 it refuses.
type stepFile struct {
	blockFile
	free  int64
	steps []string
	trims int
}

func (f *stepFile) Allocate(at, n int64) error {
	f.steps = append(f.steps, fmt.Sprint(at, "+", n))
	if f.free < 0 {
		return syscall.EOPNOTSUPP
	}
	return nil
}

func (f *stepFile) Trim() error { f.trims++; return nil }

func (f *stepFile) Free() (int64, error) {
	if f.free < 0 {
		return 1 << 40, nil
	}
	return f.free, nil
}

// aheadStream makes a stream in a folder that keeps room ahead, and returns what its files take of the disk after
// their ends; it is written and not closed.
func aheadStream(t *testing.T, path string) *Writer {
	t.Helper()
	w, err := Create(path, Options{Workers: 2, Codec: codec.None, Ahead: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(40) {
		if err := w.Append(&Packet{Name: "x", SrcType: ggmlI32, Exec: i}, make([]byte, 100_000), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(), w.Flush()); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestAhead: the room is there while a stream is written, no reader sees it, and it is gone after Close, after a
// repair and after a resume.
func TestAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	w := aheadStream(t, path)
	if w.Stats().Ahead == 0 {
		testenv.Beyond(t, "a file system that keeps room", "this one does not")
	}
	if roomBehind(t, path) < 1<<20 {
		t.Errorf("%d bytes are kept, the writer says %d", roomBehind(t, path), w.Stats().Ahead)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if info, err := os.Stat(path); err != nil || r.Len() != 40 || info.Size() != r.Info().Totals.StreamBytes {
		t.Errorf("%d packets in %d bytes, of %d, %v", r.Len(), r.Info().Totals.StreamBytes, info.Size(), err)
	}
	if committed(path) != 1 {
		t.Error("what was committed cannot be read")
	}
	for name, end := range map[string]func(path string, w *Writer) error{
		"closed": func(path string, w *Writer) error { return w.Close() },
		"repaired": func(path string, w *Writer) error {
			_, err := Repair(path, Assumed{})
			return err
		},
		"resumed": func(path string, w *Writer) error {
			again, _, err := resume(path, nil, Options{Ahead: 8 << 20})
			if err != nil {
				return err
			}
			return again.Close()
		},
		"mended": func(path string, w *Writer) error {
			_, _, err := mendFiles(path, func(Totals) []Loss { return nil })
			return err
		},
		"closed, and its room left": func(path string, w *Writer) error { // as where the end came between the two
			if err := w.Close(); err != nil {
				return err
			}
			f, err := openBlocks(path, os.O_WRONLY)
			if err != nil {
				return err
			}
			info, _ := os.Stat(path)
			if err := errors.Join(f.(roomFile).Allocate(info.Size(), 8<<20), f.Close()); err != nil ||
				roomBehind(t, path) < 1<<20 {
				return fmt.Errorf("%d bytes are kept: %w", roomBehind(t, path), err)
			}
			_, err = Repair(path, Assumed{})
			return err
		},
	} {
		path := filepath.Join(t.TempDir(), "a.stream")
		w := aheadStream(t, path)
		if err := end(path, w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := roomBehind(t, path); n > 256<<10 {
			t.Errorf("%s: %d bytes are kept", name, n)
		}
		if r, err := Open(path); err != nil || r.Len() != 40 || r.Verify(nil) != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			r.Close()
		}
		w.Close()
	}
}

// roomBehind is what a file takes of the disk after its end.
func roomBehind(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks*512 - info.Size()
}
