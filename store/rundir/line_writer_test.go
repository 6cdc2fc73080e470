package rundir

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDisk keeps files in memory, and fails on request.
type fakeDisk struct {
	mu     sync.Mutex
	names  []string
	files  map[string]*fakeFile
	room   int   // bytes until Writes fail with err
	err    error // nil: never
	create error
	end    error
	forget bool
}

type fakeFile struct {
	d      *fakeDisk
	data   []byte
	closed bool
}

func (f *fakeFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := len(p), error(nil)
	if f.d.err != nil && n > f.d.room {
		n, err = f.d.room, f.d.err
	}
	f.d.room -= n
	if !f.d.forget {
		f.data = append(f.data, p[:n]...)
	}
	return n, err
}

func (f *fakeFile) Close() error {
	f.closed = true
	return f.d.end
}

func (d *fakeDisk) set(room int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.err = room, err
}

func (d *fakeDisk) open(t testing.TB, o LineOptions) *LineWriter {
	t.Helper()
	d.files = map[string]*fakeFile{}
	o.Name = "resource.jsonl"
	o.Create = func(name string) (io.WriteCloser, error) {
		if d.create != nil {
			return nil, d.create
		}
		d.names, d.files[name] = append(d.names, name), &fakeFile{d: d}
		return d.files[name], nil
	}
	w, err := NewLineWriter(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func (d *fakeDisk) text(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.files[name].data)
}

func (d *fakeDisk) all() (text string) {
	for _, name := range d.names {
		text += d.text(name)
	}
	return text
}

var lossLine = func(dst []byte, l LineLoss) []byte {
	return fmt.Appendf(dst, "lost %d %s %d", l.Kind, l.Cause, l.Count)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lostAndWritten demands that every line was written once or counted as lost, and that those which report losses count
// as well.
func lostAndWritten(t *testing.T, d *fakeDisk, w *LineWriter, lines int) {
	t.Helper()
	written, reports := 0, 0
	for _, line := range strings.SplitAfter(d.all(), "\n") {
		if strings.HasPrefix(line, "line ") && strings.HasSuffix(line, "\n") {
			written++
		}
		if strings.HasPrefix(line, "lost ") {
			reports++
		}
	}
	lost := uint64(0)
	for _, n := range w.Stats().Lost {
		lost += n
	}
	if written+int(lost) != lines || w.Stats().Lines != uint64(lines+reports) {
		t.Errorf("%d lines: %d written, %d lost, %+v", lines, written, lost, w.Stats())
	}
}

func TestParts(t *testing.T) {
	d := &fakeDisk{}
	w := d.open(t, LineOptions{PartBytes: 30, FlushEvery: -1})
	want := ""
	for i := range 10 {
		line := fmt.Sprintf("line %04d", i) // 10 bytes with its line feed
		want += line + "\n"
		if !w.Append(0, []byte(line)) {
			t.Fatal("a line was not taken")
		}
	}
	w.Append(0, []byte(strings.Repeat("long", 20))) // larger than a part: one of its own
	check(t, w.Close())
	check(t, w.Close())
	if got := strings.Join(d.names,
		" "); got != "resource.jsonl resource.1.jsonl resource.2.jsonl resource.3.jsonl resource.4.jsonl" {
		t.Errorf("parts %s", got)
	}
	if got := d.all(); got != want+strings.Repeat("long", 20)+"\n" {
		t.Errorf("written:\n%s", got)
	}
	for name, f := range d.files {
		if !f.closed || !strings.HasSuffix(string(f.data), "\n") {
			t.Errorf("%s: closed %v, %q", name, f.closed, f.data)
		}
	}
	if s := w.Stats(); s.Parts != 5 || s.Bytes != 181 || len(s.Lost) != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
	if w.Append(0, []byte("late")) || w.Stats().Lost[CauseWrite] != 1 {
		t.Error("a closed writer took a line")
	}
}

// TestBuffered: two writers add what they hold to one count, and take it off when it is written.
func TestBuffered(t *testing.T) {
	var held atomic.Int64
	var all []*LineWriter
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		w, err := NewLineWriter(LineOptions{
			Create: func(string) (io.WriteCloser, error) { return nopCloser{io.Discard}, nil }, Name: name,
			FlushEvery: -1, Buffered: &held,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Append(0, []byte(`{"a":1}`))
		all = append(all, w)
	}
	if n := held.Load(); n != 16 {
		t.Errorf("%d bytes are held, not 16", n)
	}
	for i, w := range all {
		if err := w.Close(); err != nil || held.Load() != int64(8-8*i) {
			t.Errorf("%v, %d bytes are held", err, held.Load())
		}
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestFlushByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{}
		w := d.open(t, LineOptions{FlushEvery: 100 * time.Millisecond})
		for i := range 2 {
			w.Append(0, []byte("a"))
			time.Sleep(99 * time.Millisecond)
			synctest.Wait()
			if got := d.all(); got != strings.Repeat("a\n", i) {
				t.Errorf("written early: %q", got)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := d.all(); got != strings.Repeat("a\n", i+1) {
				t.Errorf("not written in time: %q", got)
			}
		}
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{}
		w := d.open(t, LineOptions{Kinds: []string{"free", "bounded"}, Limits: []int{0, 3}, Loss: lossLine})
		for i := range 10 {
			w.Append(0, []byte("line free"))
			if took := w.Append(1, []byte("line bounded")); took != (i < 3) {
				t.Errorf("line %d taken: %v", i, took)
			}
		}
		time.Sleep(3 * time.Second) // the loss is reported although nothing more comes
		synctest.Wait()
		if got := d.all(); strings.Count(got, "free") != 10 || strings.Count(got, "bounded") != 3 ||
			!strings.HasSuffix(got, "lost 1 rate 7\n") {
			t.Errorf("written:\n%s", got)
		}
		if !w.Append(1, []byte("line bounded")) {
			t.Error("the next second has no lines")
		}
		check(t, w.Close())
		lostAndWritten(t, d, w, 21)
	})
}

// TestDiskFull: the disk fills up amid a line; lines are kept as far as the buffer goes, the rest is counted; with
// room again the run of lines goes on where it was cut, and the loss is reported.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{}
		w := d.open(t, LineOptions{BufferBytes: 100, Kinds: []string{"a"}, Loss: lossLine})
		d.set(25, syscall.ENOSPC)
		for i := range 40 {
			w.Append(0, fmt.Appendf(nil, "line %04d", i))
		}
		if s := w.Stats(); s.Lost[CauseFull] != 28 || !errors.Is(s.Err, syscall.ENOSPC) ||
			!strings.Contains(s.Err.Error(), "resource.jsonl") {
			t.Errorf("%+v", s)
		}
		d.set(0, nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i := 40; i < 45; i++ {
			w.Append(0, fmt.Appendf(nil, "line %04d", i))
		}
		check(t, w.Close())
		lostAndWritten(t, d, w, 45)
		lines := strings.Split(d.all(), "\n")
		if lines[2] != "line 0002" || lines[11] != "line 0011" || !strings.Contains(d.all(), "lost 0 disk_full 28\n") {
			t.Errorf("written:\n%s", d.all())
		}
	})
}

// TestDiskStaysFull: what cannot be written at the end is counted too.
func TestDiskStaysFull(t *testing.T) {
	for _, err := range []error{syscall.ENOSPC, syscall.EIO} {
		d := &fakeDisk{}
		w := d.open(t, LineOptions{BufferBytes: 100, FlushEvery: -1, Kinds: []string{"a"}, Loss: lossLine})
		d.set(25, err)
		for i := range 40 {
			w.Append(0, fmt.Appendf(nil, "line %04d", i))
		}
		if got := w.Close(); !errors.Is(got, err) {
			t.Errorf("Close: %v", got)
		}
		cause := map[error]string{syscall.ENOSPC: CauseFull, syscall.EIO: CauseWrite}[err]
		if n := w.Stats().Lost[cause]; n < 38 { // two were written; the line that describes losses is counted as well
			t.Errorf("%v: lost %v", err, w.Stats().Lost)
		}
		if s := w.Stats(); s.Lines != s.Lost[cause]+2 {
			t.Errorf("%v: two lines are there, %+v", err, s)
		}
		if got := d.all(); got != "line 0000\nline 0001\nline " {
			t.Errorf("written: %q", got)
		}
	}
}

func TestPartThatCannotBeMade(t *testing.T) {
	d := &fakeDisk{}
	w := d.open(t, LineOptions{PartBytes: 30, FlushEvery: -1, Kinds: []string{"a"}})
	d.create = syscall.EMFILE
	for i := range 10 {
		w.Append(0, fmt.Appendf(nil, "line %04d", i))
	}
	check(t, w.Close())
	lostAndWritten(t, d, w, 10)
	if s := w.Stats(); len(s.Lost) != 0 || s.Parts != 1 || !errors.Is(s.Err, syscall.EMFILE) {
		t.Errorf("%+v", s)
	}
	if _, err := NewLineWriter(LineOptions{Create: func(string) (io.WriteCloser, error) { return nil, syscall.EACCES },
		Name: "x.jsonl"}); !errors.Is(err, syscall.EACCES) {
		t.Errorf("%v", err)
	}
}

// TestCloseThatFails: a file that does not appear has lost its lines.
func TestCloseThatFails(t *testing.T) {
	d := &fakeDisk{end: syscall.EIO}
	w := d.open(t, LineOptions{FlushEvery: -1, Kinds: []string{"a"}})
	for range 3 {
		w.Append(0, []byte("line"))
	}
	if err := w.Close(); !errors.Is(err, syscall.EIO) || w.Stats().Lost[CauseWrite] != 3 {
		t.Errorf("%v, %+v", err, w.Stats())
	}
}

func TestConcurrentAppends(t *testing.T) {
	d := &fakeDisk{}
	w := d.open(t, LineOptions{BufferBytes: 512, PartBytes: 4096, FlushEvery: time.Microsecond})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				w.Append(0, fmt.Appendf(nil, "line %d %d", g, i))
				if i%100 == 0 {
					w.Flush()
					w.Stats()
				}
			}
		})
	}
	wg.Wait()
	check(t, w.Close())
	lostAndWritten(t, d, w, 2000)
}
