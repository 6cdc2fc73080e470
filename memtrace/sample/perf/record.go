package perf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Types of records.
const (
	RecordMmap        = 1
	recordLost        = 2
	RecordComm        = 3
	RecordExit        = 4
	recordThrottle    = 5
	recordUnthrottle  = 6
	RecordFork        = 7
	recordSample      = 9
	RecordMmap2       = 10
	recordAux         = 11
	recordLostSamples = 13
	recordUser        = 64 // of the program perf, from here on: they have no sample id
)

// Bits of Record.AuxFlags: what a piece of a trace lacks.
const (
	auxTruncated = 1 << 0 // it did not fit into the buffer
	auxPartial   = 1 << 2 // it has gaps
	auxCollision = 1 << 3 // an operation was to be sampled while another one was: longer periods have fewer
)

// headerSize is that of a record: u32 type, u16 misc, u16 size.
const headerSize = 8

// Record is one record of a ring or a file. Fields that its type lacks are 0. Byte slices and Body belong to the buffer
// that was decoded.
type Record struct {
	Type  uint32
	Misc  uint16
	Body  []byte // what follows the header
	Event int    // number of the event that it belongs to, -1: not known
	// Sample is a sample's, and, of other records, the identity that Attr.Flags flagSampleIDAll adds: PID, TID,
	// Time, ID, CPU.
	Sample Sample
	// PID and so on are those of RecordComm, RecordFork, RecordExit and RecordMmap, RecordMmap2.
	PID, TID, ParentPID, ParentTID uint32
	Name                           []byte // of the program or the file
	Addr, Length, Offset           uint64 // of a mapping
	Prot                           uint32
	Lost                           uint64 // samples or records, recordLost and recordLostSamples
	AuxOffset, AuxSize, AuxFlags   uint64 // recordAux
}

// Event is an event whose records are decoded, with the numbers by which they name it.
type Event struct {
	Name string
	Attr Attr
	IDs  []uint64
}

// Decoder decodes records, and finds the event that each belongs to.
type Decoder struct {
	events    []Event
	byID      map[uint64]int
	samePlace bool // samples of all events have their ID at one place
	idFirst   int  // word of the ID in a sample, -1: none
	idLast    int  // word of the ID in other records, from their end, -1: none
}

// newDecoder makes a decoder for events, which it keeps.
func newDecoder(events []Event) *Decoder {
	d := &Decoder{events: events, byID: map[uint64]int{}, idFirst: -1, idLast: -1, samePlace: true}
	for i := range events {
		for _, id := range events[i].IDs {
			d.byID[id] = i
		}
		first, last := idWords(events[i].Attr.SampleType)
		if i == 0 {
			d.idFirst, d.idLast = first, last
		} else if d.idFirst != first || d.idLast != last {
			d.samePlace = false
		}
	}
	return d
}

// addID says that records with an id belong to an event.
func (d *Decoder) addID(id uint64, event int) { d.byID[id] = event }

// idWords returns the word of a sample in which its ID lies, and the word of another record, counted from its end.
func idWords(sampleType uint64) (first, last int) {
	switch {
	case sampleType&sampleIdentifier != 0:
		return 0, 1
	case sampleType&sampleID != 0:
		before := sampleType & (sampleIP | sampleTID | sampleTime | sampleAddr)
		after := sampleType & (sampleStreamID | sampleCPU)
		return bits.OnesCount64(before), 1 + bits.OnesCount64(after)
	}
	return -1, -1
}

// event returns the number of the event that a record belongs to.
func (d *Decoder) event(r *Record) int {
	if len(d.events) == 1 {
		return 0
	}
	if !d.samePlace || d.idFirst < 0 {
		return -1
	}
	at := 8 * d.idFirst
	if r.Type != recordSample {
		at = len(r.Body) - 8*d.idLast
	}
	if at < 0 || at+8 > len(r.Body) {
		return -1
	}
	if i, ok := d.byID[binary.LittleEndian.Uint64(r.Body[at:])]; ok {
		return i
	}
	if r.Type != recordSample {
		return 0 // synthesised by perf: any event's layout is right
	}
	return -1
}

// Size is how many bytes the record has that b begins with.
func Size(b []byte) (int, error) {
	if len(b) < headerSize {
		return 0, fmt.Errorf("%w: %d bytes are not a header", ErrRecord, len(b))
	}
	size := int(binary.LittleEndian.Uint16(b[6:]))
	if size < headerSize {
		return 0, fmt.Errorf("%w: its size is %d", ErrRecord, size)
	}
	return size, nil
}

// Decode reads one whole record into r.
func (d *Decoder) Decode(b []byte, r *Record) error {
	size, err := Size(b)
	if err != nil {
		return err
	}
	if size > len(b) {
		return fmt.Errorf("%w: %d of its %d bytes are there", ErrRecord, len(b), size)
	}
	*r = Record{Type: binary.LittleEndian.Uint32(b), Misc: binary.LittleEndian.Uint16(b[4:]), Body: b[headerSize:size],
		Event: -1}
	if r.Type >= recordUser || len(d.events) == 0 {
		return nil
	}
	r.Event = d.event(r)
	if r.Type == recordSample {
		if r.Event < 0 {
			return fmt.Errorf("%w: a sample of an event that is not known", ErrRecord)
		}
		return d.events[r.Event].Attr.decodeSample(r.Body, &r.Sample)
	}
	body := fields{b: r.Body}
	if r.Event >= 0 {
		d.events[r.Event].Attr.trailer(&body, &r.Sample)
	}
	r.decode(&body)
	if body.bad {
		return fmt.Errorf("%w: type %d of %d bytes ends within its fields", ErrRecord, r.Type, size)
	}
	return nil
}

// decode reads the fields of a record that is not a sample.
func (r *Record) decode(f *fields) {
	switch r.Type {
	case RecordComm:
		r.PID, r.TID = f.two()
		r.Name = text(f.b)
	case RecordFork, RecordExit:
		r.PID, r.ParentPID = f.two()
		r.TID, r.ParentTID = f.two()
		f.u64()
	case RecordMmap, RecordMmap2:
		r.PID, r.TID = f.two()
		r.Addr, r.Length, r.Offset = f.u64(), f.u64(), f.u64()
		if r.Type == RecordMmap2 {
			f.skipWords(3) // device and inode, or a build id
			r.Prot, _ = f.two()
		}
		r.Name = text(f.b)
	case recordLost:
		f.u64()
		r.Lost = f.u64()
	case recordLostSamples:
		r.Lost = f.u64()
	case recordAux:
		r.AuxOffset, r.AuxSize, r.AuxFlags = f.u64(), f.u64(), f.u64()
	}
}

// trailer cuts off the identity at a record's end.
func (a *Attr) trailer(f *fields, s *Sample) {
	if a.Flags&flagSampleIDAll == 0 {
		return
	}
	n := 8 * bits.OnesCount64(a.SampleType&(sampleTID|sampleTime|sampleID|sampleStreamID|sampleCPU|sampleIdentifier))
	if n > len(f.b) {
		f.bad = true
		return
	}
	end := fields{b: f.b[len(f.b)-n:]}
	f.b = f.b[:len(f.b)-n]
	if a.SampleType&sampleTID != 0 {
		s.PID, s.TID = end.two()
	}
	if a.SampleType&sampleTime != 0 {
		s.Time = end.u64()
	}
	if a.SampleType&sampleID != 0 {
		s.ID = end.u64()
	}
	if a.SampleType&sampleStreamID != 0 {
		s.StreamID = end.u64()
	}
	if a.SampleType&sampleCPU != 0 {
		s.CPU, _ = end.two()
	}
	if a.SampleType&sampleIdentifier != 0 {
		s.ID = end.u64()
	}
}

// text returns the text before the first zero byte.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
