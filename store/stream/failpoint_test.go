package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// fault is what goes wrong at one call of a disk, and whether it stays.
type fault struct {
	name  string
	err   error
	part  bool // a half of what is to be written gets there first
	stays bool
}

var faults = []fault{
	{name: "full", err: syscall.ENOSPC, part: true, stays: true},
	{name: "full for a moment", err: syscall.ENOSPC, part: true},
	{name: "input/output error", err: syscall.EIO},
	{name: "lost half", err: syscall.EIO, part: true, stays: true},
	{name: "interrupted", err: syscall.EINTR},
	{name: "short write", part: true}, // no error at all
}

// faulty is a disk with two files, whose call number at goes wrong.
type faulty struct {
	fault
	at    int64
	calls atomic.Int64
	hit   atomic.Bool
	spare atomic.Bool // it was a call for room ahead, which nothing depends on
}

// fails reports whether this call goes wrong.
func (d *faulty) fails() bool {
	n := d.calls.Add(1)
	if n == d.at {
		d.hit.Store(true)
	}
	return n == d.at || d.stays && n > d.at
}

// faultyFile is a file of a faulty disk, in memory.
type faultyFile struct {
	disk *faulty
	data []byte
}

func (f *faultyFile) writeAt(p []byte, at int64) (int, error) {
	n, err := len(p), error(nil)
	if f.disk.fails() {
		n, err = 0, f.disk.err
		if f.disk.part {
			n = len(p) / 2
		}
	}
	if end := int(at) + n; end > len(f.data) {
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	copy(f.data[at:], p[:n])
	return n, err
}

// faultyRoom is a faultyBlocks that keeps room ahead.
type faultyRoom struct{ faultyBlocks }

func (f faultyRoom) room() error {
	if f.disk.fails() {
		f.disk.spare.CompareAndSwap(false, f.disk.calls.Load() >= f.disk.at)
		return f.disk.err
	}
	return nil
}

func (f faultyRoom) Allocate(at, n int64) error { return f.room() }
func (f faultyRoom) Trim() error                { return f.room() }
func (f faultyRoom) Free() (int64, error)       { return 1 << 40, f.room() }

func (f *faultyFile) Write(p []byte) (int, error) { return f.writeAt(p, int64(len(f.data))) }

func (f *faultyFile) Sync() error { return f.call() }

func (f *faultyFile) Close() error { return f.call() }

func (f *faultyFile) call() error {
	if f.disk.fails() {
		return f.disk.err // a short one does what it shall
	}
	return nil
}

// faultyBlocks is a faultyFile that takes blocks. Like [os.File.WriteAt], it reports a short write by an error.
type faultyBlocks struct{ *faultyFile }

func (f faultyBlocks) WriteBlocks(p []byte, at int64) error { return f.WriteTail(p, at) }

func (f faultyBlocks) WriteTail(p []byte, at int64) error {
	n, err := f.writeAt(p, at)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// TestFailpoints lets every write, sync and close of a stream go wrong, one after the other, in every way. It is
// reported, with the file and the cause, by Close and everything after it; what was committed before can be read, and
// no value is wrong; a mend leaves a whole stream with all that was synced.
func TestFailpoints(t *testing.T) {
	small, large := newCapture(6, 4), newCapture(14, 130) // the second has whole blocks
	step := int64(1)
	switch {
	case testing.Short(): // goroutines end alike when the next call fails
		step = 7
	case !testenv.Nightly():
		step = 3
	}
	for _, f := range testenv.Brief(faults, 2) {
		for _, kind := range []struct {
			name  string
			c     *capture
			ahead int64
			open  func(*faultyFile) File
		}{
			{"plain", small, 0, func(f *faultyFile) File { return f }},
			{"blocks", small, 0, func(f *faultyFile) File { return faultyBlocks{f} }},
			{"blocks with room ahead", large, 6 * BlockAlign,
				func(f *faultyFile) File { return faultyRoom{faultyBlocks{f}} }},
		} {
			for _, policy := range []Sync{{Policy: SyncToken}, {Policy: SyncNone}} {
				n, spare := int64(1), 0
				for ; ; n += step {
					what := fmt.Sprintf("%s at call %d, %s, %v", f.name, n, kind.name, policy)
					d := &faulty{fault: f, at: n}
					if !kind.c.failAt(t, what, d, kind.open,
						Options{Workers: 1, Codec: codec.LZ4, Sync: policy, Ahead: kind.ahead}) {
						break
					}
					if d.spare.Load() {
						spare++
					}
				}
				if n < 6 || kind.ahead > 0 && int64(spare) < 3/step {
					t.Errorf("%s, %s, %v: only %d calls went wrong, %d for room", f.name, kind.name, policy, n-1, spare)
				}
			}
		}
	}
}

// failAt writes the capture to a disk that goes wrong, and reports whether it did.
func (c *capture) failAt(t *testing.T, what string, d *faulty, as func(*faultyFile) File, o Options) bool {
	t.Helper()
	s, x := &faultyFile{disk: d}, &faultyFile{disk: d}
	w, err := New(as(s), x, o)
	if err != nil {
		t.Fatalf("%s: %v", what, err) // nothing is written yet
	}
	check := func(err error) {
		t.Helper()
		cause := d.err
		if cause == nil {
			cause = io.ErrShortWrite
		}
		if err != nil && (!errors.Is(err, cause) || !strings.Contains(err.Error(), "stream") &&
			!strings.Contains(err.Error(), "index")) {
			t.Fatalf("%s: it is reported as %v", what, err)
		}
	}
	for i := range c.executions {
		check(w.AppendExecution(&c.executions[i]))
		for at := range c.packets {
			if c.packets[at].Exec == c.executions[i].Exec {
				check(w.Append(&c.packets[at], c.data[at], nil))
			}
		}
		check(w.Commit())
		check(w.Flush())
	}
	err = w.Close()
	check(err)
	if again := w.Close(); !errors.Is(again, err) && fmt.Sprint(again) != fmt.Sprint(err) {
		t.Fatalf("%s: closed again: %v", what, again)
	}
	switch hurt := d.hit.Load(); {
	case hurt && err != nil:
		c.survive(t, what, d, w, s.data, x.data)
	case !hurt && err != nil || hurt && !d.harmless(o):
		t.Fatalf("%s: it went wrong: %v; Close: %v", what, hurt, err)
	default:
		if r := open(t, s.data, x.data); r.Len() != len(c.packets) || r.Verify(nil) != nil {
			t.Fatalf("%s: nothing was reported, and %d packets of %d are there, %v", what, r.Len(), len(c.packets),
				r.Verify(nil))
		}
	}
	return d.hit.Load()
}

// harmless reports whether what went wrong may have had no consequence: a short sync or close is none, a disk that
// has no room to spare is no full one, and the room that was kept ahead was enough for an index that found the disk
// full.
func (d *faulty) harmless(o Options) bool {
	return d.err == nil || d.spare.Load() || o.Ahead > 0 && d.err == syscall.ENOSPC && !d.stays
}

// survive looks at what a disk that went wrong has left.
func (c *capture) survive(t *testing.T, what string, d *faulty, w *Writer, stream, index []byte) {
	t.Helper()
	synced := w.Synced()
	if len(index) < headerSize {
		if synced.Commits > 0 {
			t.Fatalf("%s: %+v was synced, and there is no index", what, synced)
		}
		return
	}
	r := open(t, stream, index)
	promised(t, what, r, synced)
	if r.parts[0].index.footer == nil {
		c.survivors(t, what, stream, index)
	}
	if d.at%4 != 1 && !testenv.Nightly() {
		return // it takes syncs of the real disk
	}
	path := filepath.Join(t.TempDir(), "a.stream")
	for name, data := range map[string][]byte{path: stream, path + IndexSuffix: index} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.Mend(path, func(Totals) []Loss { return nil }); err != nil {
		t.Fatalf("%s: mend: %v", what, err)
	}
	mended, err := Open(path)
	if err != nil {
		t.Fatalf("%s: mended: %v", what, err)
	}
	defer mended.Close()
	if err := mended.Verify(nil); err != nil {
		t.Fatalf("%s: mended: %v", what, err)
	}
	// a mend ends after a commit
	synced.Packets, synced.Executions = synced.Commits*uint64(len(c.packets)/len(c.executions)), synced.Commits
	promised(t, what, mended, synced)
}
