package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
)

// Repair stores backups alongside the file, under its name with one of these suffixes, and a number from 2 on
// where that is taken.
const (
	OrigSuffix = ".orig" // a file as it was
	cutSuffix  = ".cut"  // the end of a stream that is not a part of it any more
)

// causeCutOff is the cause of the losses that Repair records: what was written after the last commit marker before
// the end came.
const causeCutOff = "cut_off"

// Assumed is what [Repair] takes for true about packets that no index describes, and neither does another packet of
// their node.
type Assumed struct {
	DType codec.DType // codec.Raw: F16
	Codec codec.ID    // codec.None: what the payload begins as
}

// Repaired is what Repair did.
type Repaired struct {
	What    []string // in words; empty: nothing had to be done
	Rebuilt int      // packets that are known from the stream alone
	Lost    bool     // something is gone for good
	Stream  Sum
	Index   Sum
}

// Repair makes a stream and its index whole as far as possible, and throws nothing away: the old index, and what
// has to be cut off the stream, are put aside. It must not be called while the stream is being written.
//
// An index that only lacks its end is cut off after the last commit marker, and the stream with it, as [Mend]
// does. An index that is damaged in the middle, or not there, is made anew: sound records are taken over, and
// packets between them found in the stream ([Packet.Rebuilt]); what cannot be found is recorded as a [Gap].
// Payloads stay as they are: those that do not have their checksum are refused by every read, before and after.
func Repair(path string, assume Assumed) (*Repaired, error) {
	r := &repair{path: path, assume: assume, done: &Repaired{}}
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("repair %s: %w", path, err)
	}
	if info, err := os.Stat(path); err == nil {
		_ = os.Truncate(path, info.Size()) // room that a writer had kept after its end; where it stays, nobody reads it
	}
	var err error
	if r.done.Stream, err = sumFile(path); err == nil {
		r.done.Index, err = sumFile(path + IndexSuffix)
	}
	return r.done, err
}

// repair is one call of Repair.
type repair struct {
	path   string
	assume Assumed
	stream *os.File
	size   int64
	done   *Repaired
}

func (r *repair) note(format string, args ...any) {
	r.done.What = append(r.done.What, fmt.Sprintf(format, args...))
}

func (r *repair) run() error {
	var err error
	if r.stream, r.size, err = openFile(r.path); err != nil {
		return err
	}
	defer r.stream.Close()
	index, size, err := openFile(r.path + IndexSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		r.note("%s is not there: it is made from the stream", filepath.Base(r.path+IndexSuffix))
		return r.rebuild(nil)
	}
	if err != nil {
		return err
	}
	defer index.Close()
	x, err := scanFile(index, size)
	switch {
	case errors.Is(err, ErrVersion):
		return err
	case err != nil:
		r.note("%v: it is made anew from the stream", err)
		return r.rebuild(nil)
	case x.corrupt || x.footer != nil && x.end < size || x.footer != nil && x.footer.Totals != x.totals:
		for _, damage := range x.damage {
			r.note("%v", damage)
		}
		return r.rebuild(x)
	case x.footer == nil || r.size < x.totals.StreamBytes:
		return r.cutOff(x)
	case r.size > x.totals.StreamBytes:
		r.note("stream: %d bytes behind its end are put aside", r.size-x.totals.StreamBytes)
		return r.cutStream(x.totals.StreamBytes)
	}
	return nil
}

// cutOff truncates a stream after the last commit that both files hold in full, and completes it.
func (r *repair) cutOff(x *index) error {
	p, all, err := findPrefix(x.in, x.end-x.torn, func(x *index, _ record) bool {
		return x.totals.StreamBytes <= r.size
	})
	if err != nil {
		return err
	}
	r.note("index: it had no end; it ends behind its last commit marker, %d packets and %d rows, %d bytes before",
		p.Packets, p.Rows, x.size-p.IndexBytes)
	if _, err := setAside(r.path+IndexSuffix, OrigSuffix, 0); err != nil {
		return err
	}
	var losses []Loss
	l := Loss{Cause: causeCutOff, Packets: all.Packets - p.Packets, Bytes: all.SrcBytes - p.totals.SrcBytes}
	if r.size != p.StreamBytes || l.Packets > 0 {
		if err := r.countUnindexed(x, &l); err != nil {
			return err
		}
		r.done.Lost, losses = true, append(losses, l)
	}
	if err := r.copyCut(p.StreamBytes); err != nil {
		return err
	}
	data := make([]byte, p.IndexBytes)
	if err := readAt(x.in, data, 0); err != nil {
		return err
	}
	if data, err = p.appendEnd(data, x.in, losses); err != nil {
		return err
	}
	// The index first, in one step and with what is lost: whenever this is interrupted, the next repair gives the same.
	err = rundir.ReplaceFile(r.path+IndexSuffix, func(out *os.File) error {
		_, err := out.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return rewrite(r.path, p.StreamBytes, nil)
}

// countUnindexed adds to a loss the packets that the stream holds after the last one that the index describes, the
// one that is cut off included, and their bytes in the tensors. A packet counts without bytes where its head is cut
// off, or no other packet of its node says what it was stored from.
func (r *repair) countUnindexed(x *index, l *Loss) error {
	at, unsized := x.totals.StreamBytes, 0
	kins := kinsOf(x)
	for at < r.size {
		p, torn, err := r.head(at)
		if err != nil {
			return err
		}
		if cutName := torn && p.Name == ""; !cutName && !maybePacket(&p) {
			break // as a disk leaves blocks that were allocated and not written
		}
		l.Packets++
		size, known, err := r.sourceSize(&p, kins)
		if err != nil {
			return err
		}
		if known {
			l.Bytes += uint64(size)
		} else {
			unsized++
		}
		if torn {
			break
		}
		at += packetHeader + int64(len(p.Name)) + p.Stored
	}
	if unsized > 0 {
		r.note("stream: %d of the packets in no commit count as lost without their bytes: their sizes in memory are "+
			"unknown", unsized)
	}
	return nil
}

// head reads the head of the packet at a place; torn reports whether the stream ends within the packet. A name that
// is cut off is empty.
func (r *repair) head(at int64) (p Packet, torn bool, err error) {
	p, _, err = foreignPacket(r.stream, r.size, at)
	if err != nil || p.Offset >= 0 {
		return p, false, err
	}
	p, _, err = foreignPacket(r.stream, math.MaxInt64, at) // as if the stream continued
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return Packet{Offset: at}, true, nil
	}
	return p, true, err
}

// sourceSize returns how many bytes a packet's content had in its tensor, by the sizes of another packet of its node.
func (r *repair) sourceSize(p *Packet, kins map[string]kin) (size int64, known bool, err error) {
	k, known := kins[p.Name]
	if !known || k.several || k.packet.RawBytes == 0 {
		return 0, false, nil
	}
	from := p.Offset + packetHeader + int64(len(p.Name))
	need := min(p.Stored, 32)
	if k.packet.Codec == codec.ZstdShuffle {
		need = p.Stored // each of its frames has a size
	}
	raw, known := p.Stored, true
	if k.packet.Codec != codec.None {
		payload := make([]byte, max(0, min(need, r.size-from)))
		if err := readAt(r.stream, payload, from); err != nil {
			return 0, false, err
		}
		raw, known = codec.Size(payload, k.packet.Codec)
	}
	return k.source(raw), known && raw <= codec.MaxContent, nil
}

// copyCut puts aside what is going to be cut off the stream.
func (r *repair) copyCut(at int64) error {
	if r.size <= at {
		return nil
	}
	name, err := setAside(r.path, cutSuffix, at)
	if err == nil {
		r.note("stream: the last %d bytes are in no commit; they are in %s now", r.size-at, filepath.Base(name))
	}
	return err
}

// cutStream ends the stream at a place.
func (r *repair) cutStream(at int64) error {
	if r.size <= at {
		return nil
	}
	if err := r.copyCut(at); err != nil {
		return err
	}
	r.done.Lost = true
	return rewrite(r.path, at, nil)
}

// setAside copies a file from a place on, up to a hole at its end, under a name that is free, which it returns; not
// again if that was done before. When it returns, the copy is on the disk. A hole holds nothing, and may be as
// large as the disk.
func setAside(path, suffix string, from int64) (name string, err error) {
	in, _, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	data, err := extents(in, from)
	if err != nil {
		return "", err
	}
	end := from
	if len(data) > 0 {
		end = data[len(data)-1].end
	}
	for n := 1; ; n++ {
		name = path + suffix
		if n > 1 {
			name += fmt.Sprint(n)
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if same(name, in, from, end) {
			return name, nil // by a repair that was cut off
		}
	}
	err = rundir.ReplaceFile(name, func(out *os.File) error { return copyData(out, in, from, data) })
	return name, err
}

// extent is a stretch of a file between holes.
type extent struct{ at, end int64 }

// extents returns where data is in a file from an offset on.
func extents(f *os.File, at int64) (all []extent, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for at < info.Size() {
		e := extent{}
		if e.at, err = nextData(f, at, info.Size()); err != nil || e.at == info.Size() {
			break
		}
		if e.end, err = nextHole(f, e.at, info.Size()); err != nil {
			break
		}
		all, at = append(all, e), e.end
	}
	return all, err
}

// copyData copies stretches of a file into an empty one, from a place on, and leaves out what lies between them.
func copyData(out, in *os.File, from int64, data []extent) error {
	for _, e := range data {
		if _, err := out.Seek(e.at-from, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, io.NewSectionReader(in, e.at, e.end-e.at)); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a file holds a stretch of another one.
func same(name string, other *os.File, from, to int64) bool {
	f, size, err := openFile(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return to-from == size && equal(f, io.NewSectionReader(other, from, size))
}

// equal compares two readers to their ends.
func equal(a, b io.Reader) bool {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return errors.Is(errA, io.EOF) == errors.Is(errB, io.EOF) &&
				errors.Is(errA, io.ErrUnexpectedEOF) == errors.Is(errB, io.ErrUnexpectedEOF)
		}
	}
}

// kin is what is known of a node from packets whose records are there.
type kin struct {
	node    node
	packet  Packet
	several bool // nodes of that name
}

// source returns how many bytes of the tensor a packet of the node was stored from, by its content's bytes.
func (k *kin) source(raw int64) int64 {
	if k.packet.RawBytes == 0 {
		return raw
	}
	// the ratio of two element types is exact
	return int64(float64(raw) * (float64(k.packet.SrcBytes) / float64(k.packet.RawBytes)))
}

// kinsOf maps names of packets to their nodes.
func kinsOf(x *index) map[string]kin {
	kins := map[string]kin{}
	var p Packet
	for i := range int(x.totals.Packets) {
		if x.packet(i, &p) != nil || p.Rebuilt {
			continue
		}
		k, known := kins[p.Name]
		kins[p.Name] = kin{node: nodeOf(&p), packet: p, several: known && (k.several || k.node != nodeOf(&p))}
	}
	return kins
}
