package table

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Options bound a writer.
type Options struct {
	// GroupRows is how many rows a row group has at least before it ends by itself (1048576): readers pass groups
	// by, and share them out to their threads.
	GroupRows int
	// GroupBytes is how much a row group may take in memory before it ends by itself (128 MiB).
	GroupBytes int64
	// PageBytes is about what a page has before compression (1 MiB).
	PageBytes int
}

func (o *Options) complete() {
	if o.GroupRows <= 0 {
		o.GroupRows = 1 << 20
	}
	if o.GroupBytes <= 0 {
		o.GroupBytes = 128 << 20
	}
	if o.PageBytes <= 0 {
		o.PageBytes = 1 << 20
	}
}

// Parquet writes a Parquet file: zstd level 3, integers and texts as their column's [Encoding] says, floats with
// their bytes in streams of their own (BYTE_STREAM_SPLIT), which are coded by Huffman alone. The same rows in the same
// batches give the same bytes. A row group is kept in memory, packed, until it is complete: [Options].GroupBytes at
// most, beside a page and a dictionary of a MiB each for every column. It is for one goroutine.
type Parquet struct {
	schema  Schema
	options Options
	out     *bufio.Writer
	at      int64
	meta    fileMeta
	chunks  []*chunk
	rows    int // of the row group
	err     error
	done    bool
}

// NewParquet begins a file with the usual bounds.
func NewParquet(w io.Writer, s Schema) (*Parquet, error) { return NewParquetOptions(w, s, Options{}) }

// NewParquetOptions begins a file.
func NewParquetOptions(w io.Writer, s Schema, o Options) (*Parquet, error) {
	o.complete()
	p := &Parquet{schema: s, options: o, out: bufio.NewWriterSize(w, 1<<16)}
	p.meta.schema = []element{{name: "schema", physical: physicalNone, repetition: -1, children: len(s.Columns),
		converted: convertedNone}}
	names := map[string]bool{}
	for _, c := range s.Columns {
		if c.Name == "" || names[c.Name] || c.Kind > Float64 || c.Encoding > Plain {
			return nil, fmt.Errorf("column %q: unsupported name, kind or encoding, or a name that is there twice",
				c.Name)
		}
		names[c.Name] = true
		p.meta.schema = append(p.meta.schema, elements(c)...)
		p.chunks = append(p.chunks, newChunk(c, o.PageBytes))
	}
	p.meta.about = append(p.meta.about, s.Metadata...)
	p.write([]byte(magic))
	return p, nil
}

// elements are a column in a footer.
func elements(c Column) []element {
	e := element{name: c.Name, repetition: required, converted: convertedNone}
	if c.Null {
		e.repetition = optional
	}
	e.physical = c.Kind.physical()
	switch c.Kind {
	case Int32:
		e.converted = convertedInt32
	case Int64:
		if e.time = c.Unit == UnixNS; !e.time {
			e.converted = convertedInt64
		}
	case Uint32:
		e.converted, e.unsigned = convertedUint32, true
	case Uint64:
		e.converted, e.unsigned = convertedUint64, true
	case Text:
		e.converted = convertedUTF8
	case Int32List, Float32List:
		value := element{name: "element", physical: e.physical, repetition: required, converted: convertedNone}
		e.physical, e.children, e.converted = physicalNone, 1, convertedList
		return []element{e, {name: "list", physical: physicalNone, repetition: repeated, children: 1,
			converted: convertedNone}, value}
	}
	return []element{e}
}

// write writes bytes; an error stays.
func (p *Parquet) write(b []byte) {
	if p.err != nil {
		return
	}
	n, err := p.out.Write(b)
	p.at += int64(n)
	if err != nil {
		p.err = fmt.Errorf("write Parquet file: %w", err)
	}
}

// Write writes the batch, with what was appended before, as one row group; an empty one is nothing.
func (p *Parquet) Write(b *Batch) error {
	if err := p.Append(b); err != nil {
		return err
	}
	return p.EndGroup()
}

// Append adds the batch's rows to the row group, which ends by itself where it has become large enough.
func (p *Parquet) Append(b *Batch) error {
	switch {
	case p.err != nil:
		return p.err
	case p.done:
		return errors.New("write Parquet file: it is complete")
	case len(b.columns) != len(p.chunks):
		return fmt.Errorf("write Parquet file: a batch of %d columns for %d", len(b.columns), len(p.chunks))
	}
	if err := b.settle(); err != nil || b.rows == 0 {
		return err
	}
	for i, k := range p.chunks {
		c := &b.columns[i]
		if c.kind != k.column.Kind || c.null && !k.column.Null {
			return fmt.Errorf("write Parquet file: the batch has other values in column %s", k.column.Name)
		}
	}
	for i, k := range p.chunks {
		k.append(&b.columns[i])
	}
	p.rows += b.rows
	if p.rows >= p.options.GroupRows || p.Memory() >= p.options.GroupBytes {
		return p.EndGroup()
	}
	return nil
}

// Memory is about how many bytes the rows take that are not written yet.
func (p *Parquet) Memory() (n int64) {
	for _, k := range p.chunks {
		n += k.memory()
	}
	return n
}

// Size is how many bytes are written.
func (p *Parquet) Size() int64 { return p.at }

// EndGroup writes what was appended as a row group, if there is anything.
func (p *Parquet) EndGroup() error {
	if p.rows == 0 || p.err != nil {
		return p.err
	}
	g := groupMeta{rows: int64(p.rows), chunks: make([]chunkMeta, len(p.chunks))}
	for i, k := range p.chunks {
		var dictionary []byte
		g.chunks[i], dictionary = k.finish(p.at)
		p.write(dictionary)
		p.write(k.out)
		k.begin()
	}
	p.meta.groups = append(p.meta.groups, g)
	p.meta.rows += g.rows
	p.rows = 0
	return p.err
}

// AddMetadata puts a text about the table as a whole into the file, as [Schema].Metadata does, for what is known
// only at its end.
func (p *Parquet) AddMetadata(key, value string) error {
	if p.done {
		return fmt.Errorf("write Parquet file: metadata %s: it is complete", key)
	}
	p.meta.about = append(p.meta.about, [2]string{key, value})
	return nil
}

// Close ends the file. It does not close the writer after it. A second call does nothing.
func (p *Parquet) Close() error {
	if p.done {
		return p.err
	}
	p.EndGroup()
	p.done = true
	if err := p.describe(); err != nil && p.err == nil {
		p.err = fmt.Errorf("describe the columns of a Parquet file: %w", err)
	}
	p.write(p.meta.footer())
	if p.err == nil {
		if err := p.out.Flush(); err != nil {
			p.err = fmt.Errorf("end Parquet file: %w", err)
		}
	}
	p.chunks = nil
	return p.err
}
