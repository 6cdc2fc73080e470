package table

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// folder is a Folder on the disk. A file that could not be written to its end is removed by Close, as a run
// directory does.
type folder struct {
	path string
	room int // bytes until the disk is full; 0: there is enough
}

type folderFile struct {
	*os.File
	folder *folder
	path   string
	err    error
}

func (f *folder) Create(name string) (io.WriteCloser, error) {
	file, err := os.Create(filepath.Join(f.path, "."+name))
	return &folderFile{file, f, filepath.Join(f.path, name), nil}, err
}

func (f *folder) Rename(from, to string) error {
	return os.Rename(filepath.Join(f.path, from), filepath.Join(f.path, to))
}

func (f *folderFile) Write(p []byte) (int, error) {
	if f.folder.room > 0 {
		if f.folder.room -= len(p); f.folder.room <= 0 {
			f.folder.room = 1
			f.err = errFull
			return 0, errFull
		}
	}
	return f.File.Write(p)
}

func (f *folderFile) Close() error {
	if f.err != nil {
		return errors.Join(f.err, f.File.Close(), os.Remove(f.File.Name()))
	}
	return errors.Join(f.File.Close(), os.Rename(f.File.Name(), f.path))
}

var partSchema = Schema{Columns: []Column{{Name: "n", Kind: Int64}, {Name: "t", Kind: Text}},
	Metadata: [][2]string{{VersionKey, "1.0"}}}

// numbered appends rows with the numbers from first on.
func numbered(t testing.TB, p *Parts, b *Batch, first, n int) error {
	t.Helper()
	b.Reset()
	for i := range n {
		b.Int(0, int64(first+i))
		b.Text(1, fmt.Sprint((first+i)%17))
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	return p.Append(b)
}

// count reads a table of numbered rows, which must be in order, and says how many there are.
func count(t *testing.T, path string) (rows int, cut bool) {
	t.Helper()
	all, err := Open(path, "trace.parquet")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	s, err := all.Scan([]string{"n", "t"}, ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		part, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range part.Columns[0].Ints {
			if v != int64(rows) || part.Columns[1].Text(i) != fmt.Sprint(rows%17) {
				t.Fatalf("row %d is %d, %q", rows, v, part.Columns[1].Text(i))
			}
			rows++
		}
	}
	if int64(rows) != all.Rows() {
		t.Errorf("%d rows, it says %d", rows, all.Rows())
	}
	return rows, all.Cut
}

func names(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestParts: parts end by rows and by age, have one order, and a table that is small is one file.
func TestParts(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		steps int
		o     PartOptions
		want  string
	}{
		{0, PartOptions{}, "trace.parquet"},
		{5, PartOptions{}, "trace.parquet"},
		{5, PartOptions{Rows: 200}, "trace.000.parquet trace.001.parquet trace.002.parquet"},
		{4, PartOptions{Rows: 200}, "trace.000.parquet trace.001.parquet"},
		{5, PartOptions{Age: 4 * time.Second}, "trace.000.parquet trace.001.parquet"},
	} {
		dir := t.TempDir()
		c.o.Now = func() time.Time { return now }
		p, err := NewParts(&folder{path: dir}, "trace.parquet", partSchema, c.o)
		if err != nil {
			t.Fatal(err)
		}
		b := NewBatch(partSchema)
		for i := range c.steps {
			if err := numbered(t, p, b, 100*i, 100); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
		}
		p.AddMetadata("last", "words")
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
		rows, cut := count(t, dir)
		kept, lost := p.Rows()
		if got := names(t, dir); got != c.want || rows != 100*c.steps || kept != int64(rows) || lost != 0 || cut ||
			p.Bytes() == 0 {
			t.Errorf("%d steps, %+v: %s, %d rows, %d and %d, cut %t", c.steps, c.o, got, rows, kept, lost, cut)
		}
		all, err := Open(dir, "trace")
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := all.Metadata("last"); v != "words" {
			t.Errorf("metadata %q", v)
		}
		if err := p.Append(b); err == nil {
			t.Error("rows behind the end")
		}
		all.Close()
	}
}

// TestFlush: what was appended before is on the disk, in a part of its own; without anything new there is none.
func TestFlush(t *testing.T) {
	dir := t.TempDir()
	p, err := NewParts(&folder{path: dir}, "trace.parquet", partSchema, PartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(partSchema)
	if err := errors.Join(p.Flush(), numbered(t, p, b, 0, 100), p.Flush(), p.Flush()); err != nil {
		t.Fatal(err)
	}
	kept, lost := p.Rows()
	if rows, cut := count(t, dir); rows != 100 || !cut || kept != 100 || lost != 0 {
		t.Errorf("%d rows, cut %t; %d kept, %d lost", rows, cut, kept, lost)
	}
	if err := errors.Join(numbered(t, p, b, 100, 100), p.Close(), p.Flush()); err != nil {
		t.Fatal(err)
	}
	if rows, cut := count(t, dir); rows != 200 || cut {
		t.Errorf("%d rows, cut %t", rows, cut)
	}
}

// TestMissingParts: a table that lacks parts, or its end, can be read, and says so; two tables in one folder are none.
func TestMissingParts(t *testing.T) {
	dir := t.TempDir()
	p, err := NewParts(&folder{path: dir}, "trace.parquet", partSchema, PartOptions{Rows: 100})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(partSchema)
	for i := range 4 {
		if err := numbered(t, p, b, 100*i, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(dir, partName("trace", 3))
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	if rows, cut := count(t, dir); rows != 300 || !cut {
		t.Errorf("%d rows, cut %t", rows, cut)
	}
	if err := os.Remove(filepath.Join(dir, partName("trace", 1))); err != nil {
		t.Fatal(err)
	}
	all, err := Open(dir, "trace")
	if err != nil || len(all.Missing) != 1 || all.Missing[0] != "trace.001.parquet" || all.Rows() != 200 || !all.Cut {
		t.Fatalf("%+v: %v", all, err)
	}
	all.Close()
	if err := os.WriteFile(filepath.Join(dir, "trace.parquet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "trace"); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "two tables") {
		t.Errorf("%v", err)
	}
	if _, err := Open(dir, "other"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestPartsOnFullDisk: whenever the disk becomes full it is reported, parts that had ended are there, and what was lost
// is counted.
func TestPartsOnFullDisk(t *testing.T) {
	for room := 1; room < 20000; room += 700 {
		dir := t.TempDir()
		disk := &folder{path: dir, room: room}
		p, err := NewParts(disk, "trace.parquet", partSchema, PartOptions{Rows: 1000})
		if err != nil {
			t.Fatal(err)
		}
		b := NewBatch(partSchema)
		sent := 0
		for i := range 20 {
			err = errors.Join(err, numbered(t, p, b, 500*i, 500))
			sent += 500
		}
		closed := p.Close()
		kept, lost := p.Rows()
		if !errors.Is(closed, errFull) && disk.room == 1 || kept+lost != int64(sent) {
			t.Fatalf("room for %d: %v, %v; %d rows kept, %d lost", room, err, closed, kept, lost)
		}
		if kept == 0 {
			if got := names(t, dir); got != "" {
				t.Errorf("room for %d: %s", room, got)
			}
			continue
		}
		if rows, cut := count(t, dir); int64(rows) != kept || kept%1000 != 0 || cut == (lost == 0) {
			t.Errorf("room for %d: %d rows, %d were kept, %d lost, cut %t", room, rows, kept, lost, cut)
		}
	}
}

// lazy is a folder whose file of a number cannot be synced.
type lazy struct {
	folder
	bad string
}

func (l *lazy) Create(name string) (io.WriteCloser, error) {
	file, err := l.folder.Create(name)
	if err == nil && name == l.bad {
		file.(*folderFile).err = errFull
	}
	return file, err
}

// TestPartThatIsNotSynced: a part that cannot be synced is lost and reported, and the one after it, which had begun,
// is not.
func TestPartThatIsNotSynced(t *testing.T) {
	for bad, want := range []int64{0, 1000, 2000} {
		dir := t.TempDir()
		p, err := NewParts(&lazy{folder: folder{path: dir}, bad: partName("trace", bad)}, "trace.parquet", partSchema,
			PartOptions{Rows: 1000})
		if err != nil {
			t.Fatal(err)
		}
		b := NewBatch(partSchema)
		sent := int64(0)
		for i := 0; err == nil && i < 50; i++ {
			err = numbered(t, p, b, 500*i, 500)
			sent += 500
		}
		err = errors.Join(err, p.Close())
		kept, lost := p.Rows()
		if !errors.Is(err, errFull) || kept+lost != sent || lost < 1000 || kept < want {
			t.Errorf("part %d: %d rows kept, %d lost of %d; %v", bad, kept, lost, sent, err)
		}
		all, openErr := Open(dir, "trace")
		if openErr != nil {
			if kept > 0 {
				t.Error(openErr)
			}
			continue
		}
		if all.Rows() != kept || !slices.Equal(all.Missing, []string{partName("trace", bad)}) && !all.Cut &&
			(bad > 0 || all.First != 1) {
			t.Errorf("part %d: %d rows, %d were kept; missing %q", bad, all.Rows(), kept, all.Missing)
		}
		all.Close()
	}
}

const endless = "LLAMATAP_TEST_ENDLESS_TABLE"

// TestKilledWriter kills a process that writes, as often as it takes: parts that had ended are there, in order, for
// everybody.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv(endless); dir != "" {
		writeForever(t, dir)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", `
import sys, duckdb
for dir, rows in zip(sys.argv[1::2], sys.argv[2::2]):
    n, low, high = duckdb.sql(f"select count(*), min(n), max(n) from read_parquet('{dir}/trace.*.parquet')").fetchone()
    assert (n, low, high) == (int(rows), 0, int(rows) - 1), (n, low, high)
`}
	for range 3 {
		dir := t.TempDir()
		cmd := exec.Command(self, "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), endless+"="+dir)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		three := make([]byte, 3)
		_, err = io.ReadFull(stdout, three) // parts have ended
		cmd.Process.Kill()
		cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		rows, cut := count(t, dir)
		if rows < 3*1000 || rows%1000 != 0 || !cut {
			t.Errorf("%d rows, cut %t", rows, cut)
		}
		args = append(args, dir, fmt.Sprint(rows))
	}
	python := testenv.NeedPython(t, "duckdb")
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// writeForever writes parts of 1000 rows, and reports each that has ended.
func writeForever(t *testing.T, dir string) {
	p, err := NewParts(&folder{path: dir}, "trace.parquet", partSchema, PartOptions{Rows: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(partSchema)
	printed := int64(0)
	for i := 0; ; i++ {
		if err := numbered(t, p, b, 100*i, 100); err != nil {
			t.Fatal(err)
		}
		for kept, _ := p.Rows(); printed < kept; printed += 1000 {
			os.Stdout.WriteString(".")
		}
	}
}
