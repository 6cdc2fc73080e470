package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// ErrNotResumable occurs when a stream cannot be gone on with: it lost packets, or nothing of it was committed.
var ErrNotResumable = errors.New("cannot be resumed")

// Kept is what stays of a stream that is gone on with: everything up to the last commit that both files hold whole.
type Kept struct {
	Mark
	Cut      Totals // what the index told of and was taken away, or is to be
	path     string
	index    *index
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

// Examine finds what can be kept of the stream at path, to go on behind its last commit, or behind the one that upTo, unless it is nil,
// tells of. Every kept packet is read and compared with its checksum; a commit behind one that is damaged does not count. Nothing is changed.
func Examine(path string, upTo *Mark) (*Kept, error) {
	k, err := keep(path, upTo)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", path, err)
	}
	return k, nil
}

// GoOn opens the stream, whose writer has ended, behind what is kept. What came after that is cut off, from both files. Header, numbers
// of nodes and checksums go on, so that a stream that was interrupted cannot be told from one that was not, but for the times.
// Of o, RunID is ignored; dtype and codec are for packets to come. It may be called once.
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
	end := int(k.IndexBytes)
	stream, index, err := k.reopen(k.path, end, &o)
	if err != nil {
		return nil, err
	}
	j := &journal{header: k.index.header, out: index, before: stream, chain: k.chain, ids: map[node]uint64{}, every: 1024}
	k.fill(j, k.sequence, end)
	w, err := newWriter(j, o, k)
	if err != nil {
		return nil, errors.Join(err, stream.close(), index.close())
	}
	return w, nil
}

// keep finds the last commit up to which both files are whole.
func keep(path string, upTo *Mark) (*Kept, error) {
	data, err := os.ReadFile(path + IndexSuffix)
	if err != nil {
		return nil, err
	}
	h, chain, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	sound, all, err := soundBytes(path, h, data, chain)
	if err != nil {
		return nil, err
	}
	m := mender{index: newIndex(h, data), at: headerSize, chain: chain}
	commits := uint64(math.MaxUint64)
	if upTo != nil {
		commits = upTo.Commits
	}
	at := m.lastCommit(sound, commits)
	for m.at < at {
		m.step()
	}
	if len(m.index.losses) > 0 {
		return nil, fmt.Errorf("%w: %d packets were lost to %s before its end", ErrNotResumable, m.index.losses[0].Packets, m.index.losses[0].Cause)
	}
	t := m.index.totals
	k := &Kept{path: path, index: m.index, totals: t, chain: m.chain, sequence: m.sequence, Mark: Mark{
		StreamBytes: t.StreamBytes, IndexBytes: int64(m.at), Packets: t.Packets, Executions: t.Executions, Rows: t.Rows, Commits: t.Commits,
	}}
	k.Cut = Totals{
		StreamBytes: all.StreamBytes - t.StreamBytes, Packets: all.Packets - t.Packets, Executions: all.Executions - t.Executions, Rows: all.Rows - t.Rows,
		SrcBytes: all.SrcBytes - t.SrcBytes, RawBytes: all.RawBytes - t.RawBytes, Stored: all.Stored - t.Stored,
	}
	return k, nil
}

// lastCommit is the end of the last commit record, of the first so many, that tells of at most so many bytes of the stream; where the
// records begin, without one.
func (m *mender) lastCommit(streamBytes int64, commits uint64) int {
	end := m.at
	probe := *m
	probe.index = newIndex(m.index.header, m.index.data)
	for {
		kind, ok := probe.step()
		if !ok || kind == recordEnd || probe.index.totals.StreamBytes > streamBytes || probe.index.totals.Commits > commits {
			return end
		}
		if kind == recordCommit {
			end = probe.at
		}
	}
}

// soundBytes is how far the stream is what the index says: the end of the last packet before one that is cut off or damaged. all is what the
// index tells of.
func soundBytes(path string, h Header, data []byte, chain uint32) (sound int64, all Totals, err error) {
	f, size, err := openFile(path)
	if err != nil {
		return 0, all, err
	}
	defer f.Close()
	m := mender{index: newIndex(h, data), at: headerSize, chain: chain}
	for ok := true; ok; {
		_, ok = m.step()
	}
	r := &Reader{stream: f, size: size, index: m.index}
	var p Packet
	var raw []byte
	for i := range m.index.packets {
		if m.index.packet(i, &p) != nil {
			break
		}
		if raw, err = r.stored(&p, raw[:0]); err != nil {
			break
		}
		sound = p.Offset + packetHeader + int64(len(p.Name)) + p.Stored
	}
	return sound, m.index.totals, nil
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
func (k *Kept) reopen(path string, end int, o *Options) (stream, index *output, err error) {
	if err := rewrite(path+IndexSuffix, int64(end), nil); err != nil {
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

// goOn makes an output that of a file that has bytes already: they are hashed, and the next one goes behind them. What fills no block
// is in the buffer, as it would be.
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
func (k *Kept) fill(j *journal, sequence uint32, end int) {
	m := mender{index: k.index}
	j.footer = Footer{Records: uint64(sequence), Totals: k.totals, Nodes: m.nodes()}
	for i := range k.index.nodes {
		j.ids[k.index.nodes[i]] = uint64(i)
	}
	_, chain, _ := parseHeader(k.index.data) // it was read before
	var p Packet
	packets := uint64(0)
	for at, n := headerSize, uint64(0); at < end; n++ {
		r, _ := parseRecord(k.index.data[at:])
		if r.kind == recordPacket {
			if k.index.header.readPacket(r.payload, k.index.nodes, k.index.lost, &p) == nil {
				j.addSeek(Seek{Packet: packets, Index: int64(at), Stream: p.Offset, Exec: p.Exec, chain: chain, record: n})
			}
			packets++
		}
		at, chain = at+r.size(), r.crc
	}
}

func (k *Kept) stats() Stats {
	t := &k.totals
	return Stats{
		Packets: t.Packets, SrcBytes: t.SrcBytes, RawBytes: t.RawBytes, Stored: t.Stored, Saturated: t.Saturated, Underflow: t.Underflow,
		FileBytes: uint64(k.StreamBytes + k.IndexBytes),
	}
}

// SameValues packs a tensor as the writer that Resume returned does, and tells whether that gives the bytes that were kept as a packet of
// Items. It is for one goroutine.
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

// Item is one thing that was appended to a stream. One of its fields is set.
type Item struct {
	Execution  *Execution
	Packet     *Packet
	Request    *ggmlhooks.RequestBegin
	Resolution *Resolution
	Commit     bool
}

// Items are what is kept, in the order in which it was appended. An item is valid until the next.
func (k *Kept) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		packets := 0
		for at := headerSize; at < int(k.IndexBytes); {
			r, _ := parseRecord(k.index.data[at:]) // each was read before
			at += r.size()
			it, ok := k.item(r, packets)
			if it.Packet != nil {
				packets++
			}
			if ok && !yield(it) {
				return
			}
		}
	}
}

// item is a record as the caller of a writer knows it; of others, not.
func (k *Kept) item(r record, packets int) (Item, bool) {
	var err error
	switch r.kind {
	case recordExecution:
		var e Execution
		e, err = k.index.header.readExecution(r.payload)
		e.Phase = k.index.phase(e.Ctx, e.Exec, e.Phase)
		return Item{Execution: &e}, err == nil
	case recordPacket:
		var p Packet
		err = k.index.packet(packets, &p)
		return Item{Packet: &p}, err == nil
	case recordRequest:
		var b ggmlhooks.RequestBegin
		b, err = readRequest(r.payload)
		return Item{Request: &b}, err == nil
	case recordResolution:
		var d Resolution
		d, err = readResolution(r.payload)
		return Item{Resolution: &d}, err == nil
	case recordCommit:
		return Item{Commit: true}, true
	}
	return Item{}, false
}
