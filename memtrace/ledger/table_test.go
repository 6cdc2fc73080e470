package ledger

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// folder keeps files in memory.
type folder struct {
	mu    sync.Mutex
	files map[string]*file
	room  int // bytes that all may take, 0 = no bound
}

type file struct {
	bytes.Buffer
	in     *folder
	failed bool
	closed bool
}

var errFull = errors.New("no room")

func (f *folder) Create(name string) (io.WriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = map[string]*file{}
	}
	n := &file{in: f}
	f.files[name] = n
	return n, nil
}

func (f *folder) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[to] = f.files[from]
	delete(f.files, from)
	return nil
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
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.closed = true
	if f.failed {
		return errFull
	}
	return nil
}

// rows reads what is complete: of every row its time, op and symbol; "-" is null.
func (f *folder) rows(t *testing.T) (rows []row, parts []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		part := f.files[name]
		if !part.closed || part.failed {
			continue
		}
		parts = append(parts, name)
		r, err := table.NewReader(bytes.NewReader(part.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := r.Metadata(table.VersionKey); v != table.Version {
			t.Errorf("version %q", v)
		}
		for group := range r.Groups() {
			var columns [3]table.Values
			for i, name := range []string{"ts_ns", "op", "symbol"} {
				if columns[i], err = r.Column(group, name); err != nil {
					t.Fatal(err)
				}
			}
			for i, at := range columns[0].Ints {
				text := func(v table.Values) string {
					if !v.Valid[i] {
						return "-"
					}
					return v.Texts[i]
				}
				rows = append(rows, row{at, text(columns[1]), text(columns[2])})
			}
		}
	}
	return rows, parts
}

type row struct {
	at         int64
	op, symbol string
}

// TestRowsOfSeveral: rows of each recorder stand in their order, with their texts, whatever batches they come in,
// one by one and many at a time.
func TestRowsOfSeveral(t *testing.T) {
	var f folder
	all := NewTable(TableOptions{Folder: &f, Memory: 1})
	all.About(func() (string, string) { return "key", "value" })
	const n = 20000
	var both sync.WaitGroup
	for k := range int64(2) {
		w := all.Writer()
		both.Go(func() {
			defer w.Close()
			for i := int64(0); i < n; {
				if i%5 == 0 {
					w.Extend(memtrace.TraceTime, []int64{2 * i, 2*i + 2, 2*i + 4})
					w.Fill(memtrace.TraceOp, w.Code(memtrace.TraceOp, []string{"read", "write"}[k]), 3)
					w.ExtendSome(memtrace.TraceSymbol, []int64{0, w.Code(memtrace.TraceSymbol, name(i+1)), 0},
						[]bool{false, true, false})
					w.Fill(memtrace.TraceToken, k, 3)
					if err := w.EndRows(3); err != nil {
						t.Error(err)
					}
					i += 3
					continue
				}
				w.Int(memtrace.TraceTime, 2*i)
				w.Int(memtrace.TraceToken, k)
				w.Text(memtrace.TraceOp, []string{"read", "write"}[k])
				if i%5 == 4 {
					w.Text(memtrace.TraceSymbol, name(i))
				}
				if err := w.EndRow(); err != nil {
					t.Error(err)
				}
				i++
			}
			if w.Rows() != n {
				t.Errorf("%d rows", w.Rows())
			}
		})
	}
	both.Wait()
	if err := errors.Join(all.Close(), all.Close()); err != nil {
		t.Fatal(err)
	}
	rows, parts := f.rows(t)
	if !slices.Equal(parts, []string{rundir.TraceName}) || len(rows) != 2*n {
		t.Fatalf("%d rows in %v", len(rows), parts)
	}
	if kept, lost := all.Rows(); kept != 2*n || lost != 0 || all.Unwritten() != 0 {
		t.Errorf("%d rows kept, %d lost", kept, lost)
	}
	if size := f.files[rundir.TraceName].Len(); all.Bytes() != int64(size) {
		t.Errorf("%d bytes, and the file has %d", all.Bytes(), size)
	}
	next := map[string]int64{}
	for _, r := range rows {
		i := next[r.op]
		next[r.op]++
		want := "-"
		if i%5 == 1 || i%5 == 4 {
			want = name(i)
		}
		if r.at != 2*i || r.symbol != want {
			t.Fatalf("row %d of those that %s: %+v, want %s", i, r.op, r, want)
		}
	}
	r, err := table.NewReader(bytes.NewReader(f.files[rundir.TraceName].Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Metadata("key"); v != "value" {
		t.Errorf("about: %q", v)
	}
}

func name(i int64) string { return "f" + string(rune('a'+i%7)) }

// TestNothing: without rows there is no file.
func TestNothing(t *testing.T) {
	var f folder
	all := NewTable(TableOptions{Folder: &f})
	w := all.Writer()
	if err := errors.Join(w.Tick(1), w.Tick(int64(time.Hour)), w.Close(), all.Close()); err != nil ||
		len(f.files) != 0 {
		t.Errorf("%d files, %v", len(f.files), err)
	}
	w.Int(memtrace.TraceTime, 1)
	if err := w.EndRow(); !errors.Is(err, ErrClosed) {
		t.Errorf("a row behind the end: %v", err)
	}
}

// TestTick: rows of which few come are packed all the same, and a part that is old enough is completed though
// nothing comes.
func TestTick(t *testing.T) {
	var f folder
	all := NewTable(TableOptions{Folder: &f, Parts: table.PartOptions{Age: 1}})
	w := all.Writer()
	w.Int(memtrace.TraceTime, 7)
	if err := errors.Join(w.EndRow(), w.Tick(100), w.Tick(100+waitNS-1)); err != nil {
		t.Fatal(err)
	}
	if rows, _ := f.rows(t); len(rows) != 0 {
		t.Errorf("too early: %v", rows)
	}
	if err := w.Tick(100 + waitNS); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testenv.Patience()); ; time.Sleep(time.Millisecond) {
		rows, parts := f.rows(t)
		if len(rows) == 1 && rows[0].at == 7 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v in %v", rows, parts)
		}
	}
	if err := errors.Join(w.Close(), all.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk checks that a full disk is reported wherever it occurs, and that earlier parts stay valid.
func TestFullDisk(t *testing.T) {
	const n = 12000
	write := func(f *folder) (*Table, error) {
		all := NewTable(TableOptions{Folder: f, Memory: 1, Parts: table.PartOptions{Rows: 1000}})
		w := all.Writer()
		var err error
		for i := int64(0); i < n && err == nil; i++ {
			w.Int(memtrace.TraceTime, i)
			err = w.EndRow()
		}
		return all, errors.Join(err, w.Close(), all.Close())
	}
	var whole folder
	if _, err := write(&whole); err != nil {
		t.Fatal(err)
	}
	size, complete := 0, map[int]bool{}
	for _, part := range whole.files {
		size += part.Len()
	}
	for room := 1; room < size; room += 1 + size/10 {
		f := folder{room: room}
		all, err := write(&f)
		if !errors.Is(err, errFull) || !errors.Is(all.Err(), errFull) {
			t.Fatalf("room for %d of %d bytes: %v", room, size, err)
		}
		rows, parts := f.rows(t)
		complete[len(parts)] = true
		for i, r := range rows {
			if r.at != int64(i) {
				t.Fatalf("row %d is %d", i, r.at)
			}
		}
		if kept, lost := all.Rows(); kept != int64(len(rows)) || lost == 0 || lost > n {
			t.Errorf("%d rows kept, %d lost; %d can be read", kept, lost, len(rows))
		}
	}
	if len(complete) < 3 {
		t.Errorf("parts that are complete: %v", complete)
	}
}
