package stream

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// ErrNotResumable occurs when a stream cannot be resumed because it lost packets.
var ErrNotResumable = errors.New("cannot be resumed")

// Kept is the part of an interrupted stream that a resumed run keeps: everything up to the last commit that both
// files hold whole.
type Kept struct {
	prefix
	Cut    Totals // what the index describes beyond that, which Resume removes
	path   string
	file   *os.File // the index
	packer *packer
	made   codec.Achieved // largest error of a kept row
	packed []byte
}

// Examine finds what can be kept of the stream at path: everything up to its last commit, or up to the commit of
// upTo unless that is nil. It reads every kept packet and compares it with its checksum; a commit after a damaged
// packet does not count. Executions at the end that were thrown away, such as one that was interrupted, are not kept:
// they come again. It changes nothing.
func Examine(path string, upTo *Mark) (*Kept, error) {
	k, err := examine(path, upTo)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", path, err)
	}
	return k, nil
}

// Resume opens the stream, whose writer has ended, and truncates both files to what is kept. Header, node numbers
// and checksums continue, so that apart from times the result equals that of an uninterrupted run. Of o, RunID is
// ignored; dtype and codec apply to new packets. Call it once.
func (k *Kept) Resume(o Options) (*Writer, error) {
	w, err := k.resume(o)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", k.path, err)
	}
	return w, nil
}

func (k *Kept) resume(o Options) (*Writer, error) {
	err := o.complete()
	if err != nil {
		return nil, err
	}
	if k.packer, err = newPacker(&o); err != nil {
		return nil, err
	}
	o.RunID = k.index.header.RunID
	stream, index, err := k.reopen(&o)
	if err != nil {
		return nil, err
	}
	j := &journal{header: k.index.header, out: index, before: stream, chain: k.chain, ids: map[node]uint64{},
		every: 1024}
	var w *Writer
	if err = k.fill(j); err == nil {
		w, err = newWriter(j, o, k)
	}
	if err != nil {
		return nil, errors.Join(err, stream.close(), index.close())
	}
	return w, nil
}

func examine(path string, upTo *Mark) (*Kept, error) {
	stream, streamSize, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	file, size, err := openFile(path + IndexSuffix)
	if err != nil {
		return nil, err
	}
	commits := uint64(math.MaxUint64)
	if upTo != nil {
		commits = upTo.Commits
	}
	in := payloads{in: stream, size: streamSize, checked: true}
	var packet Packet
	var buffer scratch
	find := func(end *thrownAway) (*prefix, Totals, error) {
		return findPrefix(file, size, func(x *index, r record) bool {
			switch r.kind {
			case recordEnd:
				return false
			case recordCommit:
				return x.totals.Commits <= commits
			case recordPacket:
				err := x.header.readPacket(r.payload, x.nodes, x.lost, &packet)
				if err == nil {
					_, err = in.payload(&packet, &buffer)
				}
				return err == nil
			}
			end.add(x, r)
			return true
		})
	}
	var end thrownAway
	p, all, err := find(&end)
	if err == nil && end.is && end.commits < p.Commits {
		commits = end.commits
		p, all, err = find(&end)
	}
	if err == nil && len(p.index.losses) > 0 {
		l := p.index.losses[0]
		err = fmt.Errorf("%w: %d packets were lost to %s before its end", ErrNotResumable, l.Packets, l.Cause)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	t := p.totals
	return &Kept{prefix: *p, path: path, file: file, Cut: Totals{
		StreamBytes: all.StreamBytes - t.StreamBytes, Packets: all.Packets - t.Packets,
		Executions: all.Executions - t.Executions, Rows: all.Rows - t.Rows,
		SrcBytes: all.SrcBytes - t.SrcBytes, RawBytes: all.RawBytes - t.RawBytes, Stored: all.Stored - t.Stored,
	}}, nil
}

// thrownAway is whether the newest execution of an index was thrown away.
type thrownAway struct {
	is      bool
	exec    uint64 // the newest
	commits uint64 // before the first of those at the end that were
}

// add takes note of an execution, or of what became of one.
func (t *thrownAway) add(x *index, r record) {
	switch r.kind {
	case recordExecution:
		if e, err := x.header.readExecution(r.payload); err == nil {
			if !t.is {
				t.commits = x.totals.Commits
			}
			t.is, t.exec = false, e.Exec
		}
	case recordResolution:
		if d, err := readResolution(r.payload); err == nil && d.LastExec == t.exec {
			t.is = d.Phase == label.PhaseSetup
		}
	}
}

// reopen truncates both files and returns them at their ends, with what is kept hashed.
func (k *Kept) reopen(o *Options) (stream, index *output, err error) {
	path := k.path
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
	if err := errors.Join(stream.resume(path), index.resume(path+IndexSuffix)); err != nil {
		return nil, nil, errors.Join(err, stream.close(), index.close())
	}
	return stream, index, nil
}

// resume makes an output append to a file: it hashes the file's bytes, and buffers the last of them that fill no
// block.
func (o *output) resume(path string) error {
	f, size, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	o.size = size
	if o.blocks != nil {
		o.size -= size % BlockAlign
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

// fill puts a journal into the state in which its writer left it after the last commit.
func (k *Kept) fill(j *journal) error {
	for i := range k.index.nodes {
		j.ids[k.index.nodes[i]] = uint64(i)
	}
	j.footer = Footer{Records: uint64(k.sequence), Totals: k.totals}
	var err error
	j.footer.Nodes, err = k.sum(k.file, func(p *Packet, s Seek) {
		k.made = k.made.Or(p.Error)
		j.addSeek(s)
	})
	return err
}

func (k *Kept) stats() Stats {
	t := &k.totals
	return Stats{
		Packets: t.Packets, SrcBytes: t.SrcBytes, RawBytes: t.RawBytes, Stored: t.Stored, Saturated: t.Saturated,
		Underflow: t.Underflow, Error: k.made,
		FileBytes: uint64(k.StreamBytes + k.IndexBytes),
	}
}

// SameValues packs a tensor as the writer that Resume returned does, and reports whether the result equals a kept
// packet of Items. It is for one goroutine.
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

// Close closes the index file, which Items reads. It may be called again.
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

// Items iterates over what is kept in the order in which it was appended. An item is valid until the next.
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
		w.index = nil // its contents are known
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

// item is a record as a caller of the writer appended it; false for the writer's own records.
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
