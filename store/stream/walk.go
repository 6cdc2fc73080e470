package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
)

// walker reads the records of an index one after the other, in bounded memory. It stops at the end record, and where no whole and
// sound record follows.
type walker struct {
	file     *os.File
	in       *bufio.Reader
	header   Header
	at       int64 // end of what was read
	sequence uint32
	chain    uint32
	nodes    []node
	lost     []bool // none is
	buf      []byte
	packet   Packet // of the newest packet record
}

// openWalker opens the index at path behind its header.
func openWalker(path string) (*walker, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	w := &walker{file: file, in: bufio.NewReaderSize(file, indexBuffer), at: headerSize}
	head := make([]byte, headerSize)
	n, err := io.ReadFull(w.in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.Join(err, file.Close())
	}
	if w.header, w.chain, err = parseHeader(head[:n]); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// next reads the next record, whose payload is valid until the call after it.
func (w *walker) next() (r record, ok bool) {
	head, err := w.in.Peek(recordHeader)
	if err != nil {
		return r, false
	}
	size := recordHeader + int(binary.LittleEndian.Uint32(head[4:])&maxRecord)
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	w.buf = w.buf[:size]
	if _, err := io.ReadFull(w.in, w.buf); err != nil {
		return r, false
	}
	if r, ok = parseRecord(w.buf); !ok || r.sequence != w.sequence || !r.follows(w.chain) || r.kind == recordEnd {
		return r, false
	}
	switch r.kind {
	case recordNode:
		c := cursor{b: r.payload}
		id, n := c.uint(), readNode(&c)
		if c.done() != nil || id != uint64(len(w.nodes)) {
			return r, false
		}
		w.nodes, w.lost = append(w.nodes, n), append(w.lost, false)
	case recordPacket:
		if w.header.readPacket(r.payload, w.nodes, w.lost, &w.packet) != nil {
			return r, false
		}
	}
	w.at, w.sequence, w.chain = w.at+int64(r.size()), w.sequence+1, r.crc
	return r, true
}

// cut is the place behind a commit.
type cut struct{ stream, index int64 }

// lastCommit finds the last commit before which everything is in both files as it was recorded.
func (w *walker) lastCommit(stream io.Reader) (last cut, lost bool) {
	last.index = headerSize
	in := bufio.NewReaderSize(stream, streamBuffer)
	for at := int64(0); ; {
		r, ok := w.next()
		if !ok {
			return last, lost
		}
		switch r.kind {
		case recordPacket:
			p := &w.packet
			if p.Offset != at || !soundPacket(in, p) {
				return last, lost
			}
			at += packetHeader + int64(len(p.Name)) + p.Stored
		case recordLoss:
			lost = true
		case recordCommit:
			last = cut{at, w.at}
		}
	}
}

// soundPacket reads a packet and tells whether it is the one that was recorded.
func soundPacket(in *bufio.Reader, p *Packet) bool {
	if _, err := in.Discard(packetHeader + len(p.Name)); err != nil {
		return false
	}
	sum := crc32.New(castagnoli)
	n, err := io.CopyN(sum, in, p.Stored)
	return err == nil && n == p.Stored && sum.Sum32() == p.CRC
}
