package stream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

// The errors of reading. They are wrapped with file, place and remedy.
var (
	ErrNoIndex   = errors.New("stream has no index") // the .idx file is not there; OpenForeign reads the stream alone
	ErrCorrupt   = errors.New("corrupt")             // bytes are not what was written
	ErrTruncated = errors.New("truncated")           // bytes are missing at an end
	ErrVersion   = errors.New("unknown format version")
)

// Reader reads a stream. All methods but Close may be called from several goroutines.
type Reader struct {
	stream  io.ReaderAt
	size    int64
	file    *os.File // nil if the caller's
	records *os.File // the index, the same
	index   *index   // nil for a foreign stream
	foreign *foreign
	assumed string
	damage  []error
	scratch sync.Pool // *scratch
	mapping mapping
	failed  atomic.Pointer[error]
	joined  // parts is nil but in a reader of Join
}

// Open opens the stream at path and its index beside it. A stream without index is ErrNoIndex. Corruption in the
// middle of the index is ErrCorrupt; a torn end, as a crash leaves it, is reported by Damage.
func Open(path string) (*Reader, error) {
	r, err := OpenDamaged(path)
	if err != nil {
		return nil, err
	}
	if r.index.corrupt {
		return nil, errors.Join(fmt.Errorf("%s%s: %w: llamatap verify reports what is left", path, IndexSuffix,
			r.damage[0]), r.Close())
	}
	return r, nil
}

// OpenDamaged is Open that takes what it can get from a corrupt index; Damage says what is missing.
func OpenDamaged(path string) (*Reader, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	index, indexSize, err := openFile(path + IndexSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s%s is not there", path, ErrNoIndex, path, IndexSuffix), f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x, err := scanFile(index, indexSize)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s%s: %w", path, IndexSuffix, err), f.Close(), index.Close())
	}
	r := newReader(f, size, x)
	r.file, r.records = f, index
	return r, nil
}

func openFile(path string) (*os.File, int64, error) {
	f, err := rundir.OpenFile(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open stream: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// NewReader returns a reader of a stream of that size and its index, which it keeps. Like OpenDamaged it takes what
// it can get.
func NewReader(stream io.ReaderAt, size int64, index []byte) (*Reader, error) {
	x, err := scan(index)
	if err != nil {
		return nil, err
	}
	return newReader(stream, size, x), nil
}

func newReader(stream io.ReaderAt, size int64, x *index) *Reader {
	r := &Reader{stream: stream, size: size, index: x, damage: x.damage}
	switch end := x.totals.StreamBytes; {
	case size < end:
		packets := int(x.totals.Packets)
		missing := sort.Search(packets, func(i int) bool {
			var p Packet
			return x.packet(i, &p) != nil || p.Offset+packetHeader+int64(len(p.Name))+p.Stored > size
		})
		r.damage = append(r.damage, fmt.Errorf("stream: %w: %d bytes, and the index describes %d: the last %d packets are missing",
			ErrTruncated, size, end, packets-missing))
	case size > end && x.footer == nil:
		r.damage = append(r.damage, fmt.Errorf("stream: %w: the index ends %d bytes before the stream", ErrTruncated,
			size-end))
	case size > end:
		r.damage = append(r.damage, fmt.Errorf("stream: %w: %d bytes that the index does not know", ErrCorrupt,
			size-end))
	}
	return r
}

// Assumed says in words what is assumed about a stream because no index says it; empty with an index.
func (r *Reader) Assumed() string { return r.assumed }

// Damage returns what is wrong with the files as far as opening them showed: errors that wrap ErrTruncated or
// ErrCorrupt.
func (r *Reader) Damage() []error { return slices.Clone(r.damage) }

// Header returns the head of the index, of the first one where streams are joined; zero for a foreign stream.
func (r *Reader) Header() Header {
	if len(r.parts) > 0 {
		return r.parts[0].Header()
	}
	if r.index == nil {
		return Header{}
	}
	return r.index.header
}

// Totals returns the sums over what can be read.
func (r *Reader) Totals() Totals {
	if r.parts != nil {
		return r.totals()
	}
	if r.index != nil {
		return r.index.totals
	}
	var t Totals
	if r.foreign != nil {
		var p Packet
		for i := range r.foreign.n {
			r.foreign.packet(i, &p)
			t.addPacket(&p)
		}
	}
	return t
}

// Len returns the number of packets.
func (r *Reader) Len() int {
	if r.parts != nil {
		return r.packets
	}
	if r.index == nil {
		return r.foreign.n
	}
	return int(r.index.totals.Packets)
}

// Packet fills p with packet i, in stream order. It allocates nothing.
func (r *Reader) Packet(i int, p *Packet) error {
	if i < 0 || i >= r.Len() {
		return fmt.Errorf("packet %d of %d: there is none", i, r.Len())
	}
	if r.parts != nil {
		return r.ofPacket(i, p)
	}
	if r.index == nil {
		r.foreign.packet(i, p)
		return nil
	}
	return r.index.packet(i, p)
}

// Err returns the first error that cut [Reader.Packets], [Reader.Executions] or [Reader.Rows] short: they read the
// index, which is not in memory, again, and a disk or another program may have lost or changed it since it was
// opened; nil: both were whole.
func (r *Reader) Err() error {
	for _, p := range r.parts {
		if err := p.Err(); err != nil {
			return err
		}
	}
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail notes an error for Err, and reports whether there is one.
func (r *Reader) fail(err error) bool {
	if err == nil {
		return false
	}
	first := err // of its own, so that no other error is made for nothing
	r.failed.CompareAndSwap(nil, &first)
	return true
}

// Packets iterates over all packets in stream order. The pointer is valid during one step. Err reports whether these
// were all.
func (r *Reader) Packets() iter.Seq2[int, *Packet] {
	return func(yield func(int, *Packet) bool) {
		var p Packet
		for i := range r.Len() {
			if r.fail(r.Packet(i, &p)) || !yield(i, &p) {
				return
			}
		}
	}
}

// Executions iterates over the executions by their number, of joined streams one after the other, phases resolved.
// The pointer is valid during one step; the rows may be kept. Err reports whether these were all.
func (r *Reader) Executions() iter.Seq[*Execution] {
	return func(yield func(*Execution) bool) {
		for _, p := range r.parts {
			for e := range p.Executions() {
				if !yield(e) {
					return
				}
			}
		}
		if r.index == nil {
			return
		}
		var e Execution
		r.fail(r.index.pages.executions(func(record record, at int64) (err error) {
			e, err = r.index.execution(record, at)
			return err
		}, func() bool { return yield(&e) }))
	}
}

// Rows returns the token rows of an execution; false if the index does not describe it, or on an error (Err).
func (r *Reader) Rows(exec uint64) ([]label.Row, bool) {
	for _, p := range r.parts {
		if rows, ok := p.Rows(exec); ok {
			return rows, true
		}
	}
	if r.index == nil {
		return nil, false
	}
	e, found, err := r.index.executionOf(exec)
	return e.Rows, !r.fail(err) && found
}

// Losses returns what was not recorded, one entry per cause.
func (r *Reader) Losses() []Loss {
	if r.parts != nil {
		return r.losses()
	}
	if r.index == nil {
		return nil
	}
	return slices.Clone(r.index.losses)
}

// closeRecords closes the index.
func (r *Reader) closeRecords() error {
	if r.records == nil {
		return nil
	}
	f := r.records
	r.records = nil
	return f.Close()
}

// Close closes the stream if Open opened it. It may be called again.
func (r *Reader) Close() error {
	if r.parts != nil {
		return r.close()
	}
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	r.mapping.close()
	return errors.Join(f.Close(), r.closeRecords())
}
