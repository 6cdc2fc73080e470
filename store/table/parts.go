package table

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Folder is where parts are written to, such as a run directory: a file has its name when it was closed without an
// error, and not before.
type Folder interface {
	Create(name string) (io.WriteCloser, error)
	Rename(from, to string) error
}

// PartOptions bound parts. A part is complete, and readable whatever happens later, when it has ended.
type PartOptions struct {
	Options
	Rows int64         // a part ends when it has so many (16777216),
	Age  time.Duration // or when its first row was appended so long ago (30 s)
	// Now is the clock; nil: the system's.
	Now func() time.Time
}

// nextPartKey is the key of a part's metadata under which the name of the part after it stands. The last part of a
// table that was completed has none.
const nextPartKey = "llamatap_next_part"

// Parts writes a table that grows while a program runs: as NAME.parquet if it is small, else as NAME.000.parquet,
// NAME.001.parquet and so on. Each is a Parquet file of its own with the rows behind those of the one before. What
// is appended is safe when its part has ended, so that a crash, a kill or a full disk takes the last part only,
// which is at most as old and as large as the options say, and the one before if that is not synced yet. It is for
// one goroutine.
type Parts struct {
	folder  Folder
	name    string // without .parquet
	schema  Schema
	options PartOptions
	now     *Parquet // nil: none is open
	file    io.WriteCloser
	ending  *ending // the part before, until it is synced
	number  int     // of the next part
	rows    int64
	since   time.Time
	kept    int64
	lost    int64
	bytes   int64
	about   [][2]string
	err     error
	done    bool
}

// NewParts begins a table with the name of its file, such as trace.parquet.
func NewParts(folder Folder, name string, s Schema, o PartOptions) (*Parts, error) {
	if o.Rows <= 0 {
		o.Rows = 1 << 24
	}
	if o.Age <= 0 {
		o.Age = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Parts{folder: folder, name: strings.TrimSuffix(name, parquetSuffix), schema: s, options: o}
	return p, p.begin()
}

// begin begins a part.
func (p *Parts) begin() error {
	file, err := p.folder.Create(partName(p.name, p.number))
	if err != nil {
		p.err = err
		return err
	}
	if p.now, err = NewParquetOptions(file, p.schema, p.options.Options); err != nil {
		p.err = errors.Join(err, file.Close())
		return p.err
	}
	p.file, p.rows = file, 0
	p.number++
	return nil
}

// Append adds a batch's rows. A failed write is an error for good: the part that was open is gone, those before it
// are kept.
func (p *Parts) Append(b *Batch) error {
	switch {
	case p.done:
		return fmt.Errorf("write %s: it is complete", p.name+parquetSuffix)
	case b.rows == 0:
		return p.Settle()
	}
	if err := p.Settle(); err != nil {
		p.lost += int64(b.rows)
		return err
	}
	if p.now == nil {
		if err := p.begin(); err != nil {
			p.lost += int64(b.rows)
			return err
		}
	}
	if p.rows == 0 {
		p.since = p.options.Now()
	}
	p.rows += int64(b.rows)
	switch err := p.now.Append(b); {
	case err == nil:
		return nil
	case p.now.err == nil: // the batch is wrong, not the file
		p.rows, p.lost = p.rows-int64(b.rows), p.lost+int64(b.rows)
		return err
	default:
		return p.fail(err)
	}
}

// Settle ends the part if it is old or large enough. Append does so too; call it where no rows come for a time.
func (p *Parts) Settle() error {
	p.openClosedParts()
	if p.err != nil || p.done || p.now == nil || p.rows == 0 {
		return p.err
	}
	if p.rows < p.options.Rows && p.options.Now().Sub(p.since) < p.options.Age {
		return nil
	}
	return p.end(true)
}

// Flush ends the part, however new it is, and waits until its rows are safe.
func (p *Parts) Flush() error {
	if p.openClosedParts(); p.err != nil || p.done || p.now == nil || p.rows == 0 {
		return p.err
	}
	err := p.end(true)
	p.join()
	return errors.Join(err, p.err)
}

// end ends the part. Closing its file, which syncs it, continues while the next one is written.
func (p *Parts) end(another bool) error {
	if another {
		p.now.AddMetadata(nextPartKey, partName(p.name, p.number))
	}
	for _, pair := range p.about {
		p.now.AddMetadata(pair[0], pair[1])
	}
	if err := p.now.Close(); err != nil {
		return p.fail(err)
	}
	part, file := &ending{p.rows, p.now.Size(), make(chan error, 1)}, p.file
	p.now, p.file = nil, nil
	p.join()
	p.ending = part
	go func() { part.done <- file.Close() }()
	return p.err
}

// ending is a part whose file is being closed.
type ending struct {
	rows, bytes int64
	done        chan error
}

// join waits until no file is being closed.
func (p *Parts) join() {
	if p.ending != nil {
		p.ended(<-p.ending.done)
	}
}

// openClosedParts opens parts whose file was closed since the last call.
func (p *Parts) openClosedParts() {
	if p.ending == nil {
		return
	}
	select {
	case err := <-p.ending.done:
		p.ended(err)
	default:
	}
}

// ended counts the rows of a part whose file was closed.
func (p *Parts) ended(err error) {
	part := p.ending
	p.ending = nil
	if err == nil {
		p.kept, p.bytes = p.kept+part.rows, p.bytes+part.bytes
		return
	}
	p.lost += part.rows
	if p.err == nil {
		p.err = fmt.Errorf("write %s: %w", p.name+parquetSuffix, err)
	}
}

// fail gives up. The folder drops the part.
func (p *Parts) fail(err error) error {
	p.err = fmt.Errorf("write %s: %w", p.name+parquetSuffix, err)
	p.lost += p.rows
	p.rows, p.now = 0, nil
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
	return p.err
}

// Rows is how many rows are safe, and how many were lost with a part that could not be completed, or came after it.
func (p *Parts) Rows() (kept, lost int64) {
	p.openClosedParts()
	return p.kept, p.lost
}

// Bytes is how large the parts are whose rows are safe.
func (p *Parts) Bytes() int64 { return p.bytes }

// Unwritten is how many rows were appended that are in no file yet: they are packed in memory.
func (p *Parts) Unwritten() int64 {
	if p.now == nil {
		return 0
	}
	return int64(p.now.rows)
}

// AddMetadata puts a text about the table as a whole into its last part, for what is known only at its end.
func (p *Parts) AddMetadata(key, value string) { p.about = append(p.about, [2]string{key, value}) }

// Close completes the table; one that is a single part gets its plain name. It returns the first error that there
// was. A second call does nothing.
func (p *Parts) Close() error {
	if p.done {
		return p.err
	}
	p.done = true
	if p.openClosedParts(); p.err == nil && p.now == nil { // the last part says that it is the last
		p.begin()
	}
	if p.now != nil { // also where a part before it was lost
		p.end(false)
	}
	if p.join(); p.err == nil && p.number == 1 {
		if err := p.folder.Rename(partName(p.name, 0), p.name+parquetSuffix); err != nil {
			p.err = fmt.Errorf("complete %s: %w", p.name+parquetSuffix, err)
		}
	}
	return p.err
}
