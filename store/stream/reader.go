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
	"sync/atomic"

	"github.com/llamatap/llamatap/store/codec"
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

// Reader reads a stream, or several as one. All methods but Close may be called from several goroutines.
type Reader struct {
	info    Info
	parts   []placed // one, unless Join made the reader
	packets int
	failed  atomic.Pointer[error]
}

// placed is a part, and where its packets are in the whole.
type placed struct {
	*part
	base  int64 // offset of its first byte
	first int   // number of its first packet
}

// part is one stream, with an index or without one.
type part struct {
	payloads
	index   *index   // nil for a foreign stream
	foreign *foreign // nil for others
	records *os.File // the index, if the reader opened it
}

// Info is what is known of a stream as a whole. Joined streams have their sums, and the header of the first one.
type Info struct {
	Header Header // of the index; zero for a foreign stream
	Totals Totals // sums over what can be read
	Losses []Loss // what was not recorded, one entry per cause
	Gaps   []Gap  // what is missing in an index that Repair made anew, in order
	// Damage is what is wrong with the files as far as opening them showed: errors that wrap ErrTruncated or
	// ErrCorrupt.
	Damage []error
	// Assumed says in words what is assumed about a stream because no index says it; empty with an index.
	Assumed string
}

// Open opens the stream at path and its index alongside. A stream without index is ErrNoIndex. Corruption in the
// middle of the index is ErrCorrupt; a torn end, as a crash leaves it, is in Info.Damage.
func Open(path string) (*Reader, error) {
	r, err := OpenDamaged(path)
	if err != nil {
		return nil, err
	}
	if r.parts[0].index.corrupt {
		return nil, errors.Join(fmt.Errorf("%s%s: %w: llamatap verify reports what is left", path, IndexSuffix,
			r.info.Damage[0]), r.Close())
	}
	return r, nil
}

// OpenDamaged is Open that takes what it can get from a corrupt index; Info.Damage is what is missing.
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
	r.parts[0].file, r.parts[0].records = f, index
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

func newReader(stream io.ReaderAt, size int64, x *index) *Reader {
	damage := x.damage
	switch end := x.totals.StreamBytes; {
	case size < end:
		packets := int(x.totals.Packets)
		missing := sort.Search(packets, func(i int) bool {
			var p Packet
			return x.packet(i, &p) != nil || p.Offset+packetHeader+int64(len(p.Name))+p.Stored > size
		})
		damage = append(damage,
			fmt.Errorf("stream: %w: %d bytes, and the index describes %d: the last %d packets are missing",
				ErrTruncated, size, end, packets-missing))
	case size > end && x.footer == nil:
		damage = append(damage, fmt.Errorf("stream: %w: the index ends %d bytes before the stream", ErrTruncated,
			size-end))
	case size > end:
		damage = append(damage, fmt.Errorf("stream: %w: %d bytes that the index does not describe", ErrCorrupt,
			size-end))
	}
	return &Reader{
		info: Info{Header: x.header, Totals: x.totals, Losses: slices.Clone(x.losses), Gaps: slices.Clone(x.repairs),
			Damage: damage},
		parts:   []placed{{part: &part{payloads: payloads{in: stream, size: size, checked: true}, index: x}}},
		packets: int(x.totals.Packets),
	}
}

// Join returns a reader of several streams as if they were one, in their order: the segments of a run. Packets'
// offsets and numbers continue from stream to stream. Close closes them all.
func Join(streams ...*Reader) *Reader {
	r := &Reader{}
	var base int64
	for i, s := range streams {
		if i == 0 {
			r.info.Header = s.info.Header
		}
		for _, err := range s.info.Damage {
			r.info.Damage = append(r.info.Damage, fmt.Errorf("stream %d of %d: %w", i+1, len(streams), err))
		}
		for _, g := range s.info.Gaps {
			g.Packet += uint64(r.packets)
			r.info.Gaps = append(r.info.Gaps, g)
		}
		for _, l := range s.info.Losses {
			r.info.Losses = addLoss(r.info.Losses, l)
		}
		r.info.Totals.join(&s.info.Totals)
		for _, p := range s.parts {
			first := r.packets + p.first
			r.parts = append(r.parts, placed{p.part, base + p.base, first})
		}
		if n := len(s.parts); n > 0 {
			base += s.parts[n-1].base + s.parts[n-1].size
		}
		r.packets += s.packets
	}
	return r
}

// Info returns what is known of the stream as a whole.
func (r *Reader) Info() Info { return r.info }

// Len returns the number of packets.
func (r *Reader) Len() int { return r.packets }

// Packet fills p with packet i, in stream order. It allocates nothing.
func (r *Reader) Packet(i int, p *Packet) error {
	if i < 0 || i >= r.packets {
		return fmt.Errorf("read packet %d: the stream has packets 0 to %d", i, r.packets-1)
	}
	in := r.parts[0]
	if len(r.parts) > 1 {
		in = r.parts[sort.Search(len(r.parts), func(k int) bool { return r.parts[k].first > i })-1]
	}
	if in.foreign != nil {
		in.foreign.packet(i-in.first, p)
	} else if err := in.index.packet(i-in.first, p); err != nil {
		return err
	}
	p.Offset += in.base
	return nil
}

// Err returns the first error that cut [Reader.Packets], [Reader.Executions], [Reader.Rows] or [Reader.Texts] short:
// they read the index, which is not in memory, again, and a disk or another program may have lost or changed it
// since it was opened; nil: all were whole.
func (r *Reader) Err() error {
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
		more := true
		for _, p := range r.parts {
			if p.index == nil || !more {
				continue
			}
			var e Execution
			r.fail(p.index.pages.executions(func(record record, at int64) (err error) {
				e, err = p.index.execution(record, at)
				return err
			}, func() bool { more = yield(&e); return more }))
		}
	}
}

// Rows returns the token rows of an execution; false if the index does not describe it, or on an error (Err).
func (r *Reader) Rows(exec uint64) ([]label.Row, bool) {
	for _, p := range r.parts {
		if p.index == nil {
			continue
		}
		e, found, err := p.index.executionOf(exec)
		if !r.fail(err) && found {
			return e.Rows, true
		}
	}
	return nil, false
}

// Texts iterates over the texts of an index, in the order of the file; of several of one token the last counts. It
// ends at the first record that is damaged. Err reports a failure of reading.
func (r *Reader) Texts() iter.Seq[Text] {
	return func(yield func(Text) bool) {
		for _, p := range r.parts {
			if p.index == nil {
				continue
			}
			w, err := walk(p.index.in, p.index.size)
			if r.fail(err) {
				return
			}
			w.index = nil // its contents are known
			for record, ok := w.next(); ok; record, ok = w.next() {
				if record.kind != recordText {
					continue
				}
				t, err := readText(record.payload)
				if err != nil {
					r.fail(fmt.Errorf("index: %w", err))
					return
				}
				if !yield(t) {
					return
				}
			}
			r.fail(w.err)
		}
	}
}

// holding returns the part that holds a packet, and the packet as it is there.
func (r *Reader) holding(p *Packet) (*part, Packet, error) {
	at := sort.Search(len(r.parts), func(k int) bool { return r.parts[k].base > p.Offset }) - 1
	if at < 0 {
		return nil, *p, fmt.Errorf("tensor %q: %w: offset %d", p.Name, ErrCorrupt, p.Offset)
	}
	own := *p
	own.Offset -= r.parts[at].base
	return r.parts[at].part, own, nil
}

// ReadInto appends the packet's element bytes, decoded, to dst[:0] and returns it. Header and checksum are
// verified. It makes one read of the file, and no allocation once dst is large enough.
func (r *Reader) ReadInto(p *Packet, dst []byte) ([]byte, error) {
	in, own, err := r.holding(p)
	if err != nil {
		return dst[:0], err
	}
	s := in.borrow()
	defer in.scratch.Put(s)
	return in.read(&own, dst[:0], s)
}

// Float32 appends the packet's elements as float32 to dst[:0]: F32, F16, BF16, F64 and integers; a Raw packet is
// errors.ErrUnsupported.
func (r *Reader) Float32(p *Packet, dst []float32) ([]float32, error) {
	in, own, err := r.holding(p)
	if err != nil {
		return dst[:0], err
	}
	s := in.borrow()
	defer in.scratch.Put(s)
	if s.raw, err = in.read(&own, s.raw[:0], s); err != nil {
		return dst[:0], err
	}
	raw := s.raw
	if in.foreign != nil {
		raw = raw[:len(raw)/2*2] // as STRAP-LLM's reader drops an odd last byte
	}
	if dst, err = codec.AppendFloat32(dst[:0], raw, p.DType); err != nil {
		return dst, inPacket(&own, err)
	}
	return dst, nil
}

// maxFaults is how many faults Verify lists one by one.
const maxFaults = 20

// Verify reads the whole stream and compares every packet with the index, and the payloads' own sizes too. It
// returns all faults joined, those of Info.Damage first; of many only the first, and their number. progress, unless
// it is nil, gets how many packets of how many were compared.
func (r *Reader) Verify(progress func(done, total int64)) error {
	faults := slices.Clone(r.info.Damage)
	var raw []byte
	bad := 0
	for i, p := range r.Packets() {
		if progress != nil && i%256 == 0 {
			progress(int64(i), int64(r.Len()))
		}
		var err error
		if raw, err = r.ReadInto(p, raw); err == nil {
			continue
		}
		if bad++; bad <= maxFaults {
			faults = append(faults, err)
		}
		if errors.Is(err, errExpanded) {
			break
		}
	}
	if err := r.Err(); err != nil {
		faults = append(faults, err)
	}
	if bad > maxFaults {
		faults = append(faults, fmt.Errorf("%w: %d more packets", ErrCorrupt, bad-maxFaults))
	}
	return errors.Join(faults...)
}

// Close closes the files that the reader opened. It may be called again.
func (r *Reader) Close() error {
	var errs []error
	for _, p := range r.parts {
		for _, f := range []**os.File{&p.file, &p.records} {
			if *f != nil {
				errs = append(errs, (*f).Close())
				*f = nil
			}
		}
	}
	return errors.Join(errs...)
}
