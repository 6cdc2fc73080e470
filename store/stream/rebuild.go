package stream

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"unicode"
	"unicode/utf8"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

// rebuilder writes an index anew.
type rebuilder struct {
	*repair
	journal *journal
	kins    map[string]kin
	scratch scratch
	missing Gap // what was lost since the last record
	lost    bool
	err     error
}

// rebuild writes the index anew from what is left of it, nil where nothing is, and from the stream.
func (r *repair) rebuild(old *index) error {
	b := &rebuilder{repair: r, kins: map[string]kin{}}
	err := rundir.ReplaceFile(r.path+IndexSuffix, func(file *os.File) error {
		out := newOutput("index", file, indexBuffer)
		if err := b.write(out, old); err != nil {
			return err
		}
		if err := out.flush(); err != nil {
			return err
		}
		_, err := setAside(r.path+IndexSuffix, OrigSuffix, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.cutStream(b.journal.footer.Totals.StreamBytes); err != nil {
		return err
	}
	return rundir.Sync(filepath.Dir(r.path))
}

// write writes the whole new index.
func (b *rebuilder) write(out *output, old *index) (err error) {
	h := Header{}
	if old == nil {
		rand.Read(h.RunID[:])
	} else {
		h, b.kins = old.header, kinsOf(old)
	}
	h.Major, h.Minor = versionMajor, versionMinor
	rand.Read(h.Salt[:])
	if b.journal, err = newJournal(h, out, &output{}); err != nil {
		return err
	}
	if old == nil {
		b.lose(0)
	} else if err := b.takeAll(old); err != nil {
		return err
	}
	if err := b.find(b.size, true); err != nil {
		return err
	}
	if err := b.writeGap(); err != nil {
		return err
	}
	if err := b.journal.commit(); err != nil {
		return err
	}
	if b.done.Rebuilt > 0 {
		b.note("index: %d packets are known from the stream alone; their tokens, executions and times are unknown, "+
			"and their element type and shape are assumed", b.done.Rebuilt)
	}
	return b.journal.end()
}

// takeAll takes over what is sound of an index.
func (b *rebuilder) takeAll(old *index) error {
	head := make([]byte, headerSize)
	if err := readAt(old.in, head, 0); err != nil {
		return err
	}
	h, chain, err := parseHeader(head)
	if err != nil {
		return err
	}
	x := newIndex(h, old.in, old.size)
	x.each = func(r record, at int64) {
		if b.err == nil {
			b.err = b.addRecord(x, r)
		}
	}
	return errors.Join(x.scan(chain), b.err)
}

// lose notes that records are missing.
func (b *rebuilder) lose(records uint64) {
	b.lost, b.done.Lost, b.missing.Records = true, true, b.missing.Records+records
}

// addRecord copies a valid record; an empty one marks a gap.
func (b *rebuilder) addRecord(x *index, r record) error {
	switch r.kind {
	case 0:
		b.lose(x.missing)
		return nil
	case recordNode, recordEnd: // written with the first packet, and anew
		return nil
	case recordPacket:
		var p Packet
		if err := x.header.readPacket(r.payload, x.nodes, x.lost, &p); err != nil {
			return err
		}
		return b.packet(&p)
	case recordGap:
		c := cursor{b: r.payload}
		b.lose(c.uint())
		return nil // its bytes are found, or not, once more
	}
	if err := b.writeGap(); err != nil {
		return err
	}
	if r.kind == recordCommit {
		return b.journal.commit()
	}
	rows := 0
	if r.kind == recordExecution {
		e, err := x.header.readExecution(r.payload)
		if err != nil {
			return err
		}
		rows = len(e.Rows)
	}
	return b.journal.control(&item{kind: r.kind, payload: r.payload, rows: rows})
}

// packet takes a packet's record over, if the stream holds the packet.
func (b *rebuilder) packet(p *Packet) error {
	if p.Offset+packetHeader+int64(len(p.Name))+p.Stored > b.size {
		b.lose(1)
		return nil
	}
	if err := b.find(p.Offset, false); err != nil {
		return err
	}
	if err := b.writeGap(); err != nil {
		return err
	}
	return b.journal.packet(p)
}

// find takes what the stream holds up to a place at which a packet begins, or at which it ends. What is not a packet
// at its very end is left to be cut off.
func (b *rebuilder) find(end int64, last bool) error {
	at := b.journal.footer.Totals.StreamBytes
	for at < end {
		p, _, err := foreignPacket(b.stream, end, at)
		if err != nil {
			return err
		}
		if p.Offset < 0 || !maybePacket(&p) {
			break
		}
		next := at + packetHeader + int64(len(p.Name)) + p.Stored
		sound, err := b.describe(&p)
		if err != nil {
			return err
		}
		if !sound {
			b.skip(at, next)
		} else {
			if err := b.writeGap(); err != nil {
				return err
			}
			if err := b.journal.packet(&p); err != nil {
				return err
			}
			b.done.Rebuilt++
		}
		at = next
	}
	if at < end && !last {
		b.skip(at, end)
	}
	return nil
}

// skip leaves bytes of the stream out.
func (b *rebuilder) skip(from, to int64) {
	b.note("stream: bytes %d to %d are not a packet that can be read; they stay where they are", from, to-1)
	b.lose(0)
	b.missing.StreamBytes += to - from
}

// writeGap writes a record of what is missing here.
func (b *rebuilder) writeGap() error {
	if !b.lost {
		return nil
	}
	b.journal.payload = b.missing.append(b.journal.payload[:0])
	b.journal.footer.Totals.StreamBytes += b.missing.StreamBytes
	b.lost, b.missing = false, Gap{}
	return b.journal.append(recordGap)
}

// describe fills in what is known of a packet that only the stream holds; false if its payload cannot be decoded.
func (b *rebuilder) describe(p *Packet) (sound bool, err error) {
	if p.Stored > maxStored {
		return false, nil
	}
	payload := make([]byte, p.Stored)
	if err := readAt(b.stream, payload, p.Offset+packetHeader+int64(len(p.Name))); err != nil {
		return false, err
	}
	p.Rebuilt, p.CRC, p.Phase = true, checksum(payload), label.PhaseUnknown
	p.TokenFirst, p.NodeIndex, p.Occurrence = -1, -1, 0
	p.DType, p.Codec = b.assume.DType, codec.Detect(payload)
	if p.DType == codec.Raw {
		p.DType = codec.F16
	}
	if p.Codec == codec.None {
		p.Codec = b.assume.Codec
	}
	k, known := b.kins[p.Name]
	if k.several {
		k, known = kin{}, false
	}
	if known {
		k.node.fill(p)
		p.DType, p.Codec = k.packet.DType, k.packet.Codec
	}
	if p.Codec.Bounded() {
		p.DType = codec.F32
	}
	size, ok := codec.Size(payload, p.Codec)
	if !ok || size > math.MaxInt {
		size = codec.AnySize
	}
	if size > codec.MaxContent {
		return false, nil
	}
	b.scratch.raw, err = b.scratch.decoder.Append(b.scratch.raw[:0], payload, p.Codec, int(size))
	if err != nil || len(b.scratch.raw)%p.DType.Size() != 0 {
		return false, nil
	}
	p.RawBytes = int64(len(b.scratch.raw))
	p.SrcBytes = k.source(p.RawBytes) // k is zero where nothing is known
	p.NE = [4]int64{p.Elements(), 1, 1, 1}
	if row := k.packet.NE[0]; known && row > 0 && p.DType != codec.Raw && p.Elements()%row == 0 {
		p.NE[0], p.NE[1] = row, p.Elements()/row
	}
	return true, nil
}

// maybePacket reports whether what is at an offset of a stream may be a packet's head: freshly allocated blocks of a
// disk, for one, are zeros.
func maybePacket(p *Packet) bool {
	if p.Name == "" || !utf8.ValidString(p.Name) {
		return false
	}
	for _, c := range p.Name {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}
