package perf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/memtrace"
)

// ErrData means that a file is not a perf.data, or one that cannot be read. The error that wraps it names the cause.
var ErrData = errors.New("no perf.data that can be read")

// Layout of the header of perf.data; tools/perf/Documentation/perf.data-file-format.txt of Linux.
const (
	magic       = "PERFILE2"
	headerBytes = 104
	pipeBytes   = 16
	featureBits = 256
	maxFeature  = 1 << 24 // the largest section of features that is read
	maxEvents   = 1 << 14
	maxIDs      = 1 << 22 // of all events
)

// The feature of perf.data that is read.
const featureEventDesc = 12

// section is a part of the file.
type section struct{ offset, size uint64 }

// Data reads a file perf.data.
type Data struct {
	in      stream
	events  []Event
	decoder *Decoder
	kinds   []event
	record  Record
	packed  *packed
	traces  traces
	stats   FileStats
	clock   string
	other   func(*Record)
}

// NewData reads the header of a perf.data of so many bytes; of one that is written to a pipe (perf record -o -),
// newPipe does.
func NewData(r io.ReaderAt, size int64) (*Data, error) {
	head := make([]byte, headerBytes)
	if _, err := r.ReadAt(head[:pipeBytes], 0); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", ErrData, err)
	}
	if err := checkMagic(head); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if le.Uint64(head[8:]) == pipeBytes {
		return newPipe(io.NewSectionReader(r, 0, size))
	}
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", ErrData, err)
	}
	at := func(n int) section { return section{le.Uint64(head[n:]), le.Uint64(head[n+8:])} }
	f := dataFile{r: r, size: uint64(size), attrSize: le.Uint64(head[16:])}
	attrs, data := at(24), at(40)
	if data.size == 0 {
		return nil, fmt.Errorf("%w: its section of data is empty: perf record did not end; send it INT, not KILL",
			ErrData)
	}
	if data.offset > f.size {
		return nil, fmt.Errorf("%w: its data begin at %d of %d bytes: it is torn", ErrData, data.offset, size)
	}
	d := newData(io.NewSectionReader(r, int64(data.offset), int64(min(data.size, f.size-data.offset))))
	d.in.left = data.size
	if err := f.attributes(d, attrs); err != nil {
		return nil, err
	}
	f.features(d, section{data.offset + data.size, 0}, head[72:headerBytes])
	d.begin()
	return d, nil
}

// newPipe reads what perf record -o - writes.
func newPipe(r io.Reader) (*Data, error) {
	head := make([]byte, pipeBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", ErrData, err)
	}
	if err := checkMagic(head); err != nil {
		return nil, err
	}
	if n := binary.LittleEndian.Uint64(head[8:]); n != pipeBytes {
		return nil, fmt.Errorf("%w: its header has %d bytes: it is a file, not a pipe's", ErrData, n)
	}
	d := newData(r)
	d.in.pipe = true
	return d, nil
}

func newData(r io.Reader) *Data {
	d := &Data{}
	d.in = stream{in: bufio.NewReaderSize(r, 1<<20), buffer: make([]byte, 1<<16), stats: &d.stats}
	d.traces = traces{in: &d.in, stats: &d.stats}
	return d
}

func checkMagic(head []byte) error {
	if string(head[:8]) == magic {
		return nil
	}
	if bytes.Equal(head[:8], []byte("2ELIFREP")) {
		return fmt.Errorf("%w: it is of a big-endian machine: give it to perf script there, and import the text",
			ErrData)
	}
	return fmt.Errorf("%w: it does not begin with %s", ErrData, magic)
}

// begin makes the decoder, once all events are known.
func (d *Data) begin() {
	d.decoder = newDecoder(d.events)
	d.kinds = d.kinds[:0]
	for _, e := range d.events {
		d.kinds = append(d.kinds, kind(e))
		if d.clock == "" && e.Attr.Flags&flagUseClockID != 0 && e.Attr.ClockID == clockMonotonic {
			d.clock = "CLOCK_MONOTONIC"
		}
	}
}

// kind is the kind of an event: by its name, or, where the file has none, by its type.
func kind(e Event) event {
	k := event{collector: collector(e.Name), op: op(e.Name)}
	if e.Attr.Type == typeSoftware {
		k.collector = memtrace.CollectorFault
	}
	return k
}

// Clock is the clock of all times, "" if it is perf's own, which no other program reads.
func (d *Data) Clock() string { return d.clock }

// Others sets the function to which Next passes the records of processes and their mappings.
func (d *Data) Others(each func(*Record)) { d.other = each }

// Events are the events of the file, as far as they are known: those of a pipe come with its records.
func (d *Data) Events() []Event { return d.events }

// Stats is what was read until now.
func (d *Data) Stats() FileStats { return d.stats }

// dataFile is what can be read at any place of a file.
type dataFile struct {
	r        io.ReaderAt
	size     uint64
	attrSize uint64
	ids      uint64 // read until now
}

// read reads a section of at most so many bytes.
func (f *dataFile) read(s section, most uint64) ([]byte, error) {
	if s.size > most || s.offset > f.size || s.size > f.size-s.offset {
		return nil, fmt.Errorf("%w: a section of %d bytes at %d, in a file of %d", ErrData, s.size, s.offset, f.size)
	}
	b := make([]byte, s.size)
	if n, err := f.r.ReadAt(b, int64(s.offset)); n < len(b) {
		return nil, fmt.Errorf("%w: %w", ErrData, err)
	}
	return b, nil
}

// attributes reads the events of a file, and the numbers by which samples name them.
func (f *dataFile) attributes(d *Data, s section) error {
	if f.attrSize < 80 || f.attrSize > 4096 || s.size/f.attrSize > maxEvents {
		return fmt.Errorf("%w: attributes of %d bytes each, %d in all", ErrData, f.attrSize, s.size)
	}
	all, err := f.read(s, maxEvents*4096)
	if err != nil {
		return err
	}
	for ; uint64(len(all)) >= f.attrSize; all = all[f.attrSize:] {
		attr, err := parseAttr(all[:f.attrSize-16])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
		at := binary.LittleEndian.Uint64(all[f.attrSize-16:])
		list, err := f.read(section{at, binary.LittleEndian.Uint64(all[f.attrSize-8:])}, 8*(maxIDs-f.ids))
		if err != nil {
			return err
		}
		e := Event{Attr: attr}
		for ; len(list) >= 8; list = list[8:] {
			e.IDs = append(e.IDs, binary.LittleEndian.Uint64(list))
			f.ids++
		}
		d.events = append(d.events, e)
	}
	if len(d.events) == 0 {
		return fmt.Errorf("%w: it has no event", ErrData)
	}
	return nil
}

// features reads the names of events. A file without them can be read too.
func (f *dataFile) features(d *Data, s section, bits []byte) {
	for i := range featureBits {
		if bits[i/8]>>(i%8)&1 == 0 {
			continue
		}
		entry, err := f.read(section{s.offset, 16}, 16)
		if err != nil {
			return
		}
		s.offset += 16
		if i != featureEventDesc {
			continue
		}
		if b, err := f.read(section{binary.LittleEndian.Uint64(entry), binary.LittleEndian.Uint64(entry[8:])},
			maxFeature); err == nil {
			nameEvents(d.events, b)
		}
	}
}

// nameEvents reads the feature EVENT_DESC: number of events, size of an attribute; each its attribute, number of
// IDs, name, IDs.
func nameEvents(events []Event, b []byte) {
	le := binary.LittleEndian
	if len(b) < 8 {
		return
	}
	attrSize := uint64(le.Uint32(b[4:]))
	b = b[8:]
	for i := range events {
		if uint64(len(b)) < attrSize+8 {
			return
		}
		ids, length := uint64(le.Uint32(b[attrSize:])), uint64(le.Uint32(b[attrSize+4:]))
		b = b[attrSize+8:]
		if length > uint64(len(b)) || 8*ids > uint64(len(b))-length {
			return
		}
		name, _, _ := bytes.Cut(b[:length], []byte{0})
		events[i].Name = string(name)
		b = b[length+8*ids:]
	}
}
