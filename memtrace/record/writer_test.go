package record

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// folder keeps files in memory.
type folder struct {
	mu    sync.Mutex
	files []*file
	room  int // bytes that all may take, 0 = no bound
}

type file struct {
	bytes.Buffer
	in     *folder
	failed bool
	closed bool
}

var errFull = errors.New("no room")

func (f *folder) create() (io.WriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &file{in: f}
	f.files = append(f.files, n)
	return n, nil
}

func (f *file) Write(p []byte) (int, error) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if f.in.room > 0 {
		if f.in.room -= len(p); f.in.room <= 0 {
			f.in.room, f.failed = 1, true
			return 0, errFull
		}
	}
	return f.Buffer.Write(p)
}

func (f *file) Close() error {
	f.closed = true
	if f.failed {
		return errFull
	}
	return nil
}

// whole reads the parts that are complete, and returns the times in them.
func (f *folder) whole(t *testing.T) (times []int64, parts int) {
	t.Helper()
	for _, part := range f.files {
		if !part.closed || part.failed {
			continue
		}
		r, err := table.NewReader(bytes.NewReader(part.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := r.Metadata(memtrace.VersionKey); v != memtrace.Version {
			t.Errorf("version %q", v)
		}
		for group := range r.Groups() {
			v, err := r.Column(group, "ts_ns")
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, v.Ints...)
		}
		parts++
	}
	return times, parts
}

// TestParts: rows stand in parts in their order; a part is complete when it is old enough, each further one later, or full.
func TestParts(t *testing.T) {
	var f folder
	w := NewWriter(Options{Create: f.create, BatchRows: 10, PartRows: 40, FirstPart: 5, LastPart: 15, About: func() [][2]string { return [][2]string{{"key", "value"}} }})
	n := int64(0)
	put := func(rows int) {
		for range rows {
			w.Int(memtrace.TraceTime, n)
			w.Text(memtrace.TraceOp, "read")
			n++
			if err := w.EndRow(); err != nil {
				t.Fatal(err)
			}
		}
	}
	tick := func(ns int64, parts int64) {
		t.Helper()
		if err := w.Tick(ns); err != nil || w.Parts() != parts {
			t.Errorf("at %d: %d parts, want %d; %v", ns, w.Parts(), parts, err)
		}
	}
	tick(100, 0)
	put(3)
	tick(100, 0)
	tick(104, 0)
	tick(105, 1)
	tick(200, 1) // nothing has come
	put(12)
	tick(200, 1)
	tick(209, 1)
	tick(210, 2)
	put(40)
	tick(211, 3) // full
	put(1)
	tick(300, 3)
	tick(314, 3)
	tick(315, 4)
	put(25)
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	times, parts := f.whole(t)
	if parts != 5 || len(f.files) != 5 || int64(len(times)) != n || w.Rows() != n {
		t.Errorf("%d parts, %d of %d rows", parts, len(times), n)
	}
	for i, at := range times {
		if at != int64(i) {
			t.Fatalf("row %d is %d", i, at)
		}
	}
	r, err := table.NewReader(bytes.NewReader(f.files[2].Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Metadata("key"); v != "value" {
		t.Errorf("about: %q", v)
	}
}

// TestNothing: without rows there is no file.
func TestNothing(t *testing.T) {
	var f folder
	w := NewWriter(Options{Create: f.create})
	if err := errors.Join(w.Tick(1), w.Tick(int64(time.Hour)), w.Close()); err != nil || len(f.files) != 0 {
		t.Errorf("%d files, %v", len(f.files), err)
	}
}

// TestFullDisk: wherever the disk becomes full, it is told, and the parts before stay whole.
func TestFullDisk(t *testing.T) {
	record := func(f *folder) error {
		w := NewWriter(Options{Create: f.create, BatchRows: 8, FirstPart: 1, LastPart: 1})
		for i := range int64(24) {
			w.Int(memtrace.TraceTime, i)
			if err := w.EndRow(); err != nil {
				return errors.Join(err, w.Close())
			}
			if err := w.Tick(i); err != nil {
				return errors.Join(err, w.Close())
			}
		}
		return w.Close()
	}
	var all folder
	if err := record(&all); err != nil {
		t.Fatal(err)
	}
	size, wholes := 0, map[int]bool{}
	for _, part := range all.files {
		size += part.Len()
	}
	for room := 1; room < size; room += 1 + size/16 {
		f := folder{room: room}
		if err := record(&f); !errors.Is(err, errFull) {
			t.Fatalf("room for %d of %d bytes: %v", room, size, err)
		}
		times, parts := f.whole(t)
		wholes[parts] = true
		for i, at := range times {
			if at != int64(i) {
				t.Fatalf("row %d is %d", i, at)
			}
		}
	}
	if len(wholes) < 5 {
		t.Errorf("whole parts: %v", wholes)
	}
}
