package table

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// scanRows is how many rows a scan gives at a time, at most.
const scanRows = 1 << 16

// ScanOptions say how a scan reads.
type ScanOptions struct {
	// Workers is how many columns are unpacked at a time, all CPUs where it is 0. Each column's rows are read in
	// order by one of them.
	Workers int
	// Ahead is how many steps of 65536 rows each column is read ahead of the caller (2).
	Ahead int
}

// Scan reads columns of one or several files from the first row to the last, in order, while the caller is busy
// with the rows before. Its memory does not grow with the files: of each column (1 + Ahead) × 65536 values of 8
// bytes, texts 4, the page it is at, packed and not, and all its different texts. It is for one goroutine.
type Scan struct {
	columns []*scanColumn
	rows    Rows
	err     error
	stop    chan struct{}
	closed  sync.WaitGroup
}

// Rows are some rows of a scan: as many in each column, in the order in which columns were asked for.
type Rows struct {
	N       int
	File    int // number of the file that they are from
	Group   int // and of its row group
	Columns []*Vector
}

// scanColumn is one column: vectors go round between the goroutine that fills them and the scan.
type scanColumn struct {
	name string
	full chan scanned
	free chan *Vector
	now  *Vector // the caller's
}

// scanned is what a column's goroutine hands over.
type scanned struct {
	v           *Vector
	file, group int
	err         error // io.EOF at the end
}

// NewScan begins to read columns of files that have them. Files must stay open until the scan is closed.
func NewScan(files []*Reader, columns []string, o ScanOptions) (*Scan, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Ahead <= 0 {
		o.Ahead = 2
	}
	s := &Scan{stop: make(chan struct{})}
	cursors := make([][]*cursor, len(columns))
	for i, name := range columns {
		words := textList{codes: map[string]int32{}, most: 1 << 20}
		for _, f := range files {
			c, err := newCursor(f, name)
			if err != nil {
				return nil, named(f, err)
			}
			c.words = &words
			if len(cursors[i]) > 0 && cursors[i][0].text != c.text {
				return nil,
					named(f, fmt.Errorf(
						"%w: column %s is a text in one of the files and a number in the other: they are of "+
							"different tables", ErrTable, name))
			}
			cursors[i] = append(cursors[i], c)
		}
	}
	workers := make(chan struct{}, o.Workers)
	for i, name := range columns {
		c := &scanColumn{name: name, full: make(chan scanned, o.Ahead), free: make(chan *Vector, o.Ahead+1)}
		for range o.Ahead + 1 {
			c.free <- new(Vector)
		}
		s.columns = append(s.columns, c)
		s.rows.Columns = append(s.rows.Columns, nil)
		s.closed.Go(func() { s.read(c, cursors[i], workers) })
	}
	return s, nil
}

// named adds the file to an error.
func named(f *Reader, err error) error {
	if f.path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

// read reads a column to its end, or until the scan is closed.
func (s *Scan) read(c *scanColumn, files []*cursor, workers chan struct{}) {
	send := func(r scanned) bool {
		select {
		case c.full <- r:
			return r.err == nil
		case <-s.stop:
			return false
		}
	}
	var before *cursor
	for file, cursor := range files {
		if files[file] = nil; file > 0 {
			cursor.pages, cursor.level, cursor.code, cursor.texts = before.pages, before.level, before.code,
				before.texts
		}
		before = cursor
		for group := range cursor.t.Groups() {
			n := cursor.t.GroupRows(group)
			for at := int64(0); at < n; at += scanRows {
				var v *Vector
				select {
				case v = <-c.free:
				case <-s.stop:
					return
				}
				workers <- struct{}{}
				err := cursor.step(v, group, at, int(min(n-at, scanRows)))
				<-workers
				if err != nil {
					err = named(cursor.t, columnError(c.name, err))
				}
				if !send(scanned{v, file, group, err}) {
					return
				}
			}
		}
	}
	send(scanned{err: io.EOF})
}

// step reads the next rows of a row group.
func (c *cursor) step(v *Vector, group int, at int64, n int) error {
	if at == 0 {
		if err := c.begin(group); err != nil {
			return err
		}
	}
	return c.read(v, n)
}

// Next is the next rows, which are good until the call after; io.EOF after the last ones.
func (s *Scan) Next() (*Rows, error) {
	if s.err != nil {
		return nil, s.err
	}
	if len(s.columns) == 0 {
		s.err = io.EOF
	}
	for i, c := range s.columns {
		if c.now != nil {
			c.free <- c.now
			c.now = nil
		}
		r := <-c.full
		if r.err != nil {
			s.err = r.err
			return nil, s.err
		}
		c.now = r.v
		s.rows.Columns[i], s.rows.N, s.rows.File, s.rows.Group = r.v, r.v.Len(), r.file, r.group
	}
	return &s.rows, s.err
}

// errClosed occurs after Close.
var errClosed = errors.New("read table: the scan is closed")

// Close ends the scan, at its end or before. A second call does nothing.
func (s *Scan) Close() error {
	if !errors.Is(s.err, errClosed) {
		close(s.stop)
		s.closed.Wait()
		s.err = errClosed
	}
	return nil
}
