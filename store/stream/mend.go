package stream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Mend makes a stream whole whose writer could not end it: because the disk was full, or its process was killed.
// Both files are cut off behind the last commit that they hold in full; losses and an end record are added, and
// everything is synced. What was cut off is gone: losses is told what stays, and says what to write down as
// missing. A stream that has its end is only read. Of a stream without a single commit nothing but the heads stays.
func Mend(path string, losses func(kept Totals) []Loss) (stream, index Sum, err error) {
	data, err := os.ReadFile(path + IndexSuffix)
	if err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	return mend(path, data, len(data), losses)
}

// Mend is [Mend] for a writer whose Close has failed, and that made the stream at path. It knows more of the index
// than is in the file.
func (w *Writer) Mend(path string, losses func(kept Totals) []Loss) (stream, index Sum, err error) {
	data, err := os.ReadFile(path + IndexSuffix)
	if err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	written := min(int(w.index.size), len(data))
	if int64(written) == w.index.size {
		data = append(data[:written], w.index.buf...)
	}
	return mend(path, data, written, losses)
}

// mend makes whole what data, of which the index file holds the first bytes, tells about.
func mend(path string, data []byte, written int, losses func(kept Totals) []Loss) (stream, index Sum, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	h, chain, err := parseHeader(data)
	if err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	m := newMender(h, chain, data)
	m.read(info.Size())
	missing := losses(m.kept)
	if !m.ended || m.at > written {
		err = m.write(path, min(written, m.at), missing)
	}
	if err == nil {
		stream, err = sumFile(path)
	}
	if err == nil {
		index, err = sumFile(path + IndexSuffix)
	}
	return stream, index, err
}

// write cuts the index off before the stream, so that it never tells of bytes that are not there, and adds what it
// lacks and its end when the disk has the room of both. The file holds the first bytes of the index already.
func (m *mender) write(path string, written int, losses []Loss) error {
	if err := rewrite(path+IndexSuffix, int64(written), nil); err != nil {
		return err
	}
	if err := rewrite(path, m.kept.StreamBytes, nil); err != nil {
		return err
	}
	more := slices.Clone(m.data[written:m.at])
	if !m.ended {
		more = append(more, m.end(losses)...)
	}
	return rewrite(path+IndexSuffix, int64(written), more)
}

// newIndex is an index of which nothing was read yet.
func newIndex(h Header, in io.ReaderAt, size int64) *index {
	return &index{header: h, in: in, size: size, pages: newPages(in), requests: map[requestKey][]requestAt{}}
}

// mender walks an index up to the last commit that can be kept.
type mender struct {
	data     []byte
	index    *index
	at       int // end of what is kept
	sequence uint32
	chain    uint32
	kept     Totals
	ended    bool // the index has an end record already
}

// newMender begins behind the header of an index.
func newMender(h Header, chain uint32, data []byte) *mender {
	return &mender{data: data, index: newIndex(h, bytes.NewReader(data), int64(len(data))), at: headerSize, chain: chain}
}

// read finds the last commit of which the stream holds all bytes, and then reads the records up to it.
func (m *mender) read(streamBytes int64) {
	end := m.at
	probe := *newMender(m.index.header, m.chain, m.data)
	for {
		kind, ok := probe.step()
		if !ok || probe.index.totals.StreamBytes > streamBytes {
			break
		}
		if kind == recordCommit || kind == recordEnd {
			end = probe.at
		}
	}
	for m.at < end {
		kind, _ := m.step()
		m.ended = kind == recordEnd
	}
	m.kept = m.index.totals
}

// step takes the next record; false where there is no whole and sound one.
func (m *mender) step() (kind byte, ok bool) {
	r, ok := parseRecord(m.data[m.at:])
	r.chain = m.chain
	if !ok || r.sequence != m.sequence || !r.follows(m.chain) || m.index.take(r, int64(m.at)) != nil {
		return 0, false
	}
	m.at, m.sequence, m.chain = m.at+r.size(), m.sequence+1, r.crc
	return r.kind, true
}

// end returns the records that make the index whole: the losses and the end, without a seek table, which readers
// can do without.
func (m *mender) end(losses []Loss) []byte {
	var out []byte
	for i := range losses {
		out = m.append(out, recordLoss, losses[i].append(nil))
		m.index.losses = addLoss(m.index.losses, losses[i])
	}
	f := Footer{Records: uint64(m.sequence), Totals: m.kept, Losses: m.index.losses, Nodes: m.nodes()}
	payload := f.append(nil)
	if len(payload) > maxRecord {
		f.Nodes = nil
		payload = f.append(nil)
	}
	return m.append(out, recordEnd, payload)
}

func (m *mender) append(dst []byte, kind byte, payload []byte) []byte {
	dst, m.chain = appendRecord(dst, kind, m.sequence, m.chain, payload)
	m.sequence++
	return dst
}

// nodes sums the packets up by node, as the writer does.
func (m *mender) nodes() []NodeTotals {
	totals := make([]NodeTotals, len(m.index.nodes))
	ids := make(map[node]int, len(totals))
	for i := range m.index.nodes {
		m.index.nodes[i].fill(&totals[i].Packet)
		ids[m.index.nodes[i]] = i
	}
	var p Packet
	for i := range int(m.index.totals.Packets) {
		if m.index.packet(i, &p) != nil {
			continue // each was read before
		}
		t := &totals[ids[nodeOf(&p)]]
		t.Packets++
		t.SrcBytes += uint64(p.SrcBytes)
		t.RawBytes += uint64(p.RawBytes)
		t.Stored += uint64(p.Stored)
	}
	return totals
}

// rewrite cuts a file to a size, and appends to it.
func rewrite(path string, size int64, more []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.WriteAt(more, size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("mend %s: %w", path, err)
	}
	return nil
}

func sumFile(path string) (s Sum, err error) {
	f, _, err := openFile(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	hash := sha256.New()
	if s.Size, err = io.Copy(hash, f); err == nil {
		hash.Sum(s.SHA256[:0])
	}
	return s, err
}
