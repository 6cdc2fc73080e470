package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"

	"github.com/llamatap/llamatap/store/label"
)

// ErrNotResumable occurs when a stream cannot be gone on with: it lost packets, or nothing of it was committed.
var ErrNotResumable = errors.New("cannot be resumed")

// Kept is what stays of a stream that is gone on with: everything up to the last commit that both files hold whole.
type Kept struct {
	Mark
	Cut      Totals // what the index told of and was taken away, or is to be
	path     string
	file     *os.File // the index
	index    *index   // up to here, without its records
	totals   Totals
	chain    uint32
	sequence uint32
	packer   *packer
	packed   []byte
}

// Resume is Examine, and GoOn with what it finds.
func Resume(path string, upTo *Mark, o Options) (*Writer, *Kept, error) {
	k, err := Examine(path, upTo)
	if err != nil {
		return nil, nil, err
	}
	w, err := k.GoOn(o)
	if err != nil {
		return nil, nil, err
	}
	return w, k, nil
}

// Examine finds what can be kept of the stream at path, to go on behind its last commit, or behind the one that
// upTo, unless it is nil, tells of. Every kept packet is read and compared with its checksum; a commit behind one
// that is damaged does not count. Nothing is changed.
func Examine(path string, upTo *Mark) (*Kept, error) {
	k, err := keep(path, upTo)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", path, err)
	}
	return k, nil
}

// GoOn opens the stream, whose writer has ended, behind what is kept. What came after that is cut off, from both
// files. Header, numbers of nodes and checksums go on, so that a stream that was interrupted cannot be told from
// one that was not, but for the times. Of o, RunID is ignored; dtype and codec are for packets to come. It may be
// called once.
func (k *Kept) GoOn(o Options) (*Writer, error) {
	w, err := k.goOn(o)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", k.path, err)
	}
	return w, nil
}

func (k *Kept) goOn(o Options) (*Writer, error) {
	err := o.complete()
	if err != nil {
		return nil, err
	}
	if k.packer, err = newPacker(&o); err != nil {
		return nil, err
	}
	o.RunID = k.index.header.RunID
	stream, index, err := k.reopen(k.path, &o)
	if err != nil {
		return nil, err
	}
	j := &journal{header: k.index.header, out: index, before: stream, chain: k.chain, ids: map[node]uint64{}, every: 1024}
	var w *Writer
	if err = k.fill(j); err == nil {
		w, err = newWriter(j, o, k)
	}
	if err != nil {
		return nil, errors.Join(err, stream.close(), index.close())
	}
	return w, nil
}

// keep finds the last commit up to which both files are whole.
func keep(path string, upTo *Mark) (*Kept, error) {
	file, size, err := openFile(path + IndexSuffix)
	if err != nil {
		return nil, err
	}
	k := &Kept{path: path, file: file}
	commits := uint64(math.MaxUint64)
	if upTo != nil {
		commits = upTo.Commits
	}
	if err := k.find(size, commits); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

// find goes through both files, up to the first of so many commits behind which the stream is not what the index says.
func (k *Kept) find(size int64, commits uint64) error {
	stream, streamSize, err := openFile(k.path)
	if err != nil {
		return err
	}
	defer stream.Close()
	w, err := walk(k.file, size)
	if err != nil {
		return err
	}
	s := sounding{reader: Reader{stream: stream, size: streamSize}, whole: true}
	x := w.index
	k.index = newIndex(x.header, nil, 0)
	k.chain, k.Mark = w.chain, Mark{IndexBytes: w.at}
	for r, ok := w.next(); ok && r.kind != recordEnd; r, ok = w.next() {
		switch {
		case r.kind == recordPacket && s.whole:
			s.take(x, r)
		case r.kind == recordCommit && s.whole && x.totals.Commits <= commits:
			k.note(w)
		}
	}
	if w.err != nil {
		return fmt.Errorf("read index: %w", w.err)
	}
	if l := k.index.losses; len(l) > 0 {
		return fmt.Errorf("%w: %d packets were lost to %s before its end", ErrNotResumable, l[0].Packets, l[0].Cause)
	}
	all, t := x.totals, k.totals
	k.Cut = Totals{
		StreamBytes: all.StreamBytes - t.StreamBytes, Packets: all.Packets - t.Packets, Executions: all.Executions - t.Executions, Rows: all.Rows - t.Rows,
		SrcBytes: all.SrcBytes - t.SrcBytes, RawBytes: all.RawBytes - t.RawBytes, Stored: all.Stored - t.Stored,
	}
	return nil
}

// note keeps everything up to where a walker is.
func (k *Kept) note(w *walker) {
	x, t := w.index, w.index.totals
	k.index.nodes, k.index.lost, k.index.resolutions, k.index.losses = x.nodes, x.lost, x.resolutions, slices.Clone(x.losses)
	k.totals, k.chain, k.sequence = t, w.chain, w.sequence
	k.Mark = Mark{StreamBytes: t.StreamBytes, IndexBytes: w.at, Packets: t.Packets, Executions: t.Executions, Rows: t.Rows, Commits: t.Commits}
}

// sounding compares a stream with its index, packet by packet.
type sounding struct {
	reader Reader
	whole  bool // everything up to here is what the index says
	packet Packet
	raw    []byte
}

func (s *sounding) take(x *index, r record) {
	err := x.header.readPacket(r.payload, x.nodes, x.lost, &s.packet)
	if err == nil {
		s.raw, err = s.reader.stored(&s.packet, s.raw[:0])
	}
	s.whole = err == nil
}

// stored reads a packet's payload as it stands in the stream, and compares name, size and checksum.
func (r *Reader) stored(p *Packet, dst []byte) ([]byte, error) {
	n := packetHeader + len(p.Name) + int(p.Stored)
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	if _, err := r.stream.ReadAt(dst, p.Offset); err != nil {
		return dst, err
	}
	head := dst[:packetHeader+len(p.Name)]
	want := []byte{byte(len(p.Name) >> 8), byte(len(p.Name)), byte(p.Stored >> 24), byte(p.Stored >> 16), byte(p.Stored >> 8), byte(p.Stored)}
	if !bytes.Equal(head[:packetHeader], want) || string(head[packetHeader:]) != p.Name || checksum(dst[len(head):]) != p.CRC {
		return dst, ErrCorrupt
	}
	return dst, nil
}

// reopen cuts both files and returns them at their ends, with what is kept hashed.
func (k *Kept) reopen(path string, o *Options) (stream, index *output, err error) {
	if err := rewrite(path+IndexSuffix, k.IndexBytes, nil); err != nil {
		return nil, nil, err
	}
	if err := rewrite(path, k.StreamBytes, nil); err != nil {
		return nil, nil, err
	}
	blocks, err := openBlocks(path, os.O_WRONLY)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(path+IndexSuffix, os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, errors.Join(err, blocks.Close())
	}
	stream, index = newOutput("stream", blocks, o.streamBuffer()), newOutput("index", file, o.indexBuffer())
	if err := errors.Join(stream.goOn(path), index.goOn(path+IndexSuffix)); err != nil {
		return nil, nil, errors.Join(err, stream.close(), index.close())
	}
	return stream, index, nil
}

// goOn makes an output that of a file that has bytes already: they are hashed, and the next one goes behind them.
// What fills no block is in the buffer, as it would be.
func (o *output) goOn(path string) error {
	f, size, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	o.size = size
	if o.blocks != nil {
		o.size -= size % blockAlign
	}
	if _, err := io.CopyN(o.hash, f, o.size); err != nil {
		return err
	}
	o.tail = int(size - o.size)
	o.buf = o.buf[:o.tail]
	if _, err := io.ReadFull(f, o.buf); err != nil {
		return err
	}
	if o.blocks == nil {
		if at, ok := o.file.(io.Seeker); ok {
			_, err = at.Seek(size, io.SeekStart)
		}
	}
	return err
}

// fill puts a journal into the state in which its writer had left it behind the last commit.
func (k *Kept) fill(j *journal) error {
	x := k.index
	j.footer = Footer{Records: uint64(k.sequence), Totals: k.totals, Nodes: make([]NodeTotals, len(x.nodes))}
	for i := range x.nodes {
		j.ids[x.nodes[i]] = uint64(i)
		x.nodes[i].fill(&j.footer.Nodes[i].Packet)
	}
	w, err := walk(k.file, k.IndexBytes)
	if err != nil {
		return err
	}
	var p Packet
	at, chain, packets := w.at, w.chain, uint64(0)
	for r, ok := w.next(); ok; r, ok = w.next() {
		if r.kind == recordPacket && x.header.readPacket(r.payload, x.nodes, x.lost, &p) == nil {
			j.addSeek(Seek{Packet: packets, Index: at, Stream: p.Offset, Exec: p.Exec, chain: chain, record: uint64(r.sequence)})
			packets++
			t := &j.footer.Nodes[j.ids[nodeOf(&p)]]
			t.Packets++
			t.SrcBytes += uint64(p.SrcBytes)
			t.RawBytes += uint64(p.RawBytes)
			t.Stored += uint64(p.Stored)
		}
		at, chain = w.at, w.chain
	}
	if w.err == nil && w.at != k.IndexBytes {
		w.err = ErrCorrupt // somebody else has changed it
	}
	return w.err
}

func (k *Kept) stats() Stats {
	t := &k.totals
	return Stats{
		Packets: t.Packets, SrcBytes: t.SrcBytes, RawBytes: t.RawBytes, Stored: t.Stored, Saturated: t.Saturated, Underflow: t.Underflow,
		FileBytes: uint64(k.StreamBytes + k.IndexBytes),
	}
}

// SameValues packs a tensor as the writer that Resume returned does, and tells whether that gives the bytes that
// were kept as a packet of Items. It is for one goroutine.
func (k *Kept) SameValues(kept, p *Packet, data []byte) (bool, error) {
	again := *p
	var err error
	if k.packed, err = k.packer.append(k.packed[:0], &again, data); err != nil {
		return false, err
	}
	return again.Stored == kept.Stored && again.CRC == kept.CRC, nil
}

// Totals are the sums over what is kept.
func (k *Kept) Totals() Totals { return k.totals }

// Close gives up the index file, which Items reads. It may be called again.
func (k *Kept) Close() error {
	f := k.file
	if k.file = nil; f == nil {
		return nil
	}
	return f.Close()
}

// Item is one thing that was appended to a stream. One of its fields is set, or Execution and Begun.
type Item struct {
	Execution  *Execution
	Begun      []label.RequestBegin // the requests that begin with the execution
	Packet     *Packet
	Resolution *Resolution
	Commit     bool
	Err        error // why what follows cannot be read
}

// Items are what is kept, in the order in which it was appended. An item is valid until the next.
func (k *Kept) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		if k.file == nil {
			yield(Item{Err: os.ErrClosed})
			return
		}
		w, err := walk(k.file, k.IndexBytes)
		if err != nil {
			yield(Item{Err: err})
			return
		}
		w.index = nil // what it would learn is known
		var begun []label.RequestBegin
		for r, ok := w.next(); ok; r, ok = w.next() {
			if r.kind == recordRequest {
				if b, err := readRequest(r.payload); err == nil {
					begun = append(begun, b)
				}
				continue
			}
			it, ok := k.item(r)
			if it.Execution != nil {
				it.Begun, begun = begun, nil
			}
			if ok && !yield(it) {
				return
			}
		}
		if w.err == nil && w.at != k.IndexBytes {
			w.err = ErrCorrupt
		}
		if w.err != nil {
			yield(Item{Err: w.err})
		}
	}
}

// item is a record as the caller of a writer knows it; of others, not.
func (k *Kept) item(r record) (Item, bool) {
	x := k.index
	var err error
	switch r.kind {
	case recordExecution:
		var e Execution
		e, err = x.header.readExecution(r.payload)
		e.Phase = x.phase(e.Ctx, e.Exec, e.Phase)
		return Item{Execution: &e}, err == nil
	case recordPacket:
		var p Packet
		err = x.header.readPacket(r.payload, x.nodes, x.lost, &p)
		p.Phase = x.phase(p.Ctx, p.Exec, p.Phase)
		return Item{Packet: &p}, err == nil
	case recordResolution:
		var d Resolution
		d, err = readResolution(r.payload)
		return Item{Resolution: &d}, err == nil
	case recordCommit:
		return Item{Commit: true}, true
	}
	return Item{}, false
}
