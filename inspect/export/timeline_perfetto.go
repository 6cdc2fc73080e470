package export

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"fmt"
	"hash/fnv"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of perfetto.protos, as perfetto_trace.proto has them.
const (
	traceFieldPacket = 1

	packetClockSnapshot = 6
	packetTimestamp     = 8
	packetSequence      = 10
	packetTrackEvent    = 11
	packetInterned      = 12
	packetSequenceFlags = 13
	packetCompressed    = 50
	packetClockID       = 58
	packetDefaults      = 59
	packetTrack         = 60
	packetFirstOfSeq    = 87
	eventAnnotation     = 4
	eventType           = 9
	eventNameID         = 10
	eventTrack          = 11
	eventName           = 23
	eventCategory       = 3
	eventCounterDouble  = 44
	eventFlow           = 47
	trackUUID           = 1
	trackName           = 2
	trackParent         = 5
	trackCounter        = 8
	trackOrdering       = 11
	trackRank           = 12
	counterUnitName     = 6
	annotationNameID    = 1
	annotationInt       = 4
	annotationString    = 6
	internedCategories  = 1
	internedNames       = 2
	internedAnnotations = 3
	internedIID         = 1
	internedText        = 2
	snapshotClock       = 1
	snapshotPrimary     = 2
	clockID             = 1
	clockTimestamp      = 2
	sliceBegin          = 1
	sliceEnd            = 2
	eventInstant        = 3
	eventCounter        = 4
	clockRealtime       = 1
	clockMonotonic      = 3
	orderExplicit       = 3
	stateCleared        = 1
	stateNeeded         = 2
	perfettoSequence    = 1
	batchBytes          = 1 << 18
)

// perfetto writes packets of one sequence, with names interned.
type perfetto struct {
	packets
	event  []byte // the track event that is built
	small  []byte
	names  map[string]uint64 // by kind and text
	fresh  []byte            // interned data that the next packet brings
	tracks map[string]uint64
	began  bool
	about  about
	// requests are when the last block request of each track ended.
	requests []int64
}

// packets writes packets, compressed in batches.
type packets struct {
	w      *counted
	packet []byte // that is built
	batch  []byte // those that are not written yet
	press  *zlib.Writer
	out    bytes.Buffer
}

func newPerfetto(w *counted, a about) *perfetto {
	p := &perfetto{packets: packets{w: w}, names: map[string]uint64{}, tracks: map[string]uint64{}, about: a}
	p.press = zlib.NewWriter(&p.out)
	return p
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendText(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendFixed(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

// begin writes the packet that says which clock times are of, so that they are a date too.
func (p *perfetto) begin() error {
	p.began = true
	var snapshot []byte
	for _, c := range [][2]uint64{{clockMonotonic, uint64(p.about.mono)}, {clockRealtime, uint64(p.about.unix)}} {
		snapshot = appendBytes(snapshot, snapshotClock, appendVarint(appendVarint(nil, clockID, c[0]), clockTimestamp,
			c[1]))
	}
	snapshot = appendVarint(snapshot, snapshotPrimary, clockMonotonic)
	p.packet = appendBytes(p.packet[:0], packetClockSnapshot, snapshot)
	p.packet = appendVarint(p.packet, packetSequence, perfettoSequence)
	if err := p.put(); err != nil {
		return err
	}
	p.packet = appendVarint(p.packet[:0], packetSequence, perfettoSequence)
	p.packet = appendVarint(p.packet, packetSequenceFlags, stateCleared)
	p.packet = appendVarint(p.packet, packetFirstOfSeq, 1)
	p.packet = appendBytes(p.packet, packetDefaults, appendVarint(nil, packetClockID, clockMonotonic))
	return p.put()
}

// put adds the packet to the batch.
func (p *packets) put() error {
	p.batch = appendBytes(p.batch, traceFieldPacket, p.packet)
	if len(p.batch) >= batchBytes {
		return p.flush()
	}
	return nil
}

// flush writes the batch as one packet of compressed ones.
func (p *packets) flush() error {
	if len(p.batch) == 0 {
		return nil
	}
	p.out.Reset()
	p.press.Reset(&p.out)
	if _, err := p.press.Write(p.batch); err != nil {
		return err
	}
	if err := p.press.Close(); err != nil {
		return err
	}
	p.batch = p.batch[:0]
	_, err := p.w.Write(appendBytes(nil, traceFieldPacket, appendBytes(nil, packetCompressed, p.out.Bytes())))
	return err
}

// intern returns the number of a text among the interned data of a kind.
func (p *perfetto) intern(kind protowire.Number, text string) uint64 {
	key := string(rune('0'+kind)) + text
	id, ok := p.names[key]
	if !ok {
		id = uint64(len(p.names)) + 1
		p.names[key] = id
		p.fresh = appendBytes(p.fresh, kind, appendText(appendVarint(nil, internedIID, id), internedText, text))
	}
	return id
}

// track returns the number of a track, which it describes when it is new. parent "" is the top.
func (p *perfetto) track(parent, name string, rank uint64, unit string) (uint64, error) {
	if !p.began {
		if err := p.begin(); err != nil {
			return 0, err
		}
	}
	key := parent + "\x00" + name
	if id, ok := p.tracks[key]; ok {
		return id, nil
	}
	var above uint64
	if parent != "" {
		var err error
		if above, err = p.track("", parent, rank, ""); err != nil {
			return 0, err
		}
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	id := h.Sum64() | 1
	p.tracks[key] = id
	d := appendText(appendVarint(nil, trackUUID, id), trackName, name)
	if above != 0 {
		d = appendVarint(d, trackParent, above)
	} else {
		d = appendVarint(d, trackOrdering, orderExplicit)
	}
	d = appendVarint(d, trackRank, rank)
	if unit != "" {
		d = appendBytes(d, trackCounter, appendText(nil, counterUnitName, unit))
	}
	p.packet = appendBytes(p.packet[:0], packetTrack, d)
	p.packet = appendVarint(p.packet, packetSequence, perfettoSequence)
	return id, p.put()
}

// emit writes the track event that lies in p.event.
func (p *perfetto) emit(at int64) error {
	p.packet = appendVarint(p.packet[:0], packetTimestamp, uint64(at))
	p.packet = appendVarint(p.packet, packetSequence, perfettoSequence)
	p.packet = appendVarint(p.packet, packetSequenceFlags, stateNeeded)
	if len(p.fresh) > 0 {
		p.packet = appendBytes(p.packet, packetInterned, p.fresh)
		p.fresh = p.fresh[:0]
	}
	p.packet = appendBytes(p.packet, packetTrackEvent, p.event)
	return p.put()
}

func (p *perfetto) open(track uint64, name, category string) {
	p.event = appendVarint(p.event[:0], eventType, sliceBegin)
	p.event = appendVarint(p.event, eventTrack, track)
	p.event = appendVarint(p.event, eventNameID, p.intern(internedNames, name))
	p.event = appendVarint(p.event, eventCategory, p.intern(internedCategories, category))
}

func (p *perfetto) shut(track uint64, at int64) error {
	p.event = appendVarint(appendVarint(p.event[:0], eventType, sliceEnd), eventTrack, track)
	return p.emit(at)
}

func (p *perfetto) note(name string, value int64) {
	if value >= 0 {
		p.small = appendVarint(p.small[:0], annotationNameID, p.intern(internedAnnotations, name))
		p.event = appendBytes(p.event, eventAnnotation, appendVarint(p.small, annotationInt, uint64(value)))
	}
}

func (p *perfetto) word(name, value string) {
	if value != "" {
		p.small = appendVarint(p.small[:0], annotationNameID, p.intern(internedAnnotations, name))
		p.event = appendBytes(p.event, eventAnnotation, appendText(p.small, annotationString, value))
	}
}

// faultFlow marks flows from a graph to its page faults, requestFlow those from a fault to its block requests.
const (
	faultFlow   = 1 << 63
	requestFlow = 1 << 62
)

func (p *perfetto) execution(x *execution) error {
	track, err := p.track(fmt.Sprintf("Context %d", x.ctx), "graphs", 2, "")
	if err != nil {
		return err
	}
	var failed error
	x.walk(func(s *span) {
		p.open(track, s.name, categories[s.depth])
		switch s.depth {
		case depthGraph:
			for _, flow := range x.inputs {
				p.event = appendFixed(p.event, eventFlow, flow)
			}
			p.event = appendFixed(p.event, eventFlow, faultFlow|x.number)
			p.note("exec", int64(x.number))
			p.note("tokens", int64(x.tokens))
		case depthComponent, depthOp:
			p.note("layer", int64(s.layer))
		}
		if s.depth == depthOp {
			p.word("component", s.component)
			p.word("tensor", s.tensor)
		}
		p.note("flops", s.flops)
		p.note("bytes_read", s.read)
		p.note("bytes_written", s.written)
		failed = cmp.Or(failed, p.emit(s.start))
	}, func(s *span) {
		failed = cmp.Or(failed, p.shut(track, s.end))
	})
	return failed
}

func (p *perfetto) token(t *token) error {
	track, err := p.track(fmt.Sprintf("Context %d", t.ctx), fmt.Sprintf("tokens of sequence %d", t.seq), 1, "")
	if err != nil {
		return err
	}
	p.open(track, t.text, "token")
	p.event = appendFixed(p.event, eventFlow, t.flow) // to the graph that takes the token as input
	p.note("token_index", t.index)
	if err := p.emit(t.start); err != nil {
		return err
	}
	return p.shut(track, t.end)
}

func (p *perfetto) counter(c *counter) error {
	track, err := p.track("Counters", c.name, 5, c.unit)
	if err != nil {
		return err
	}
	p.event = appendVarint(appendVarint(p.event[:0], eventType, eventCounter), eventTrack, track)
	p.event = appendFixed(p.event, eventCounterDouble, math.Float64bits(c.value))
	return p.emit(c.at)
}

func (p *perfetto) fault(f *fault) error {
	track, err := p.track("Page faults", fmt.Sprintf("thread %d", f.tid), 3, "")
	if err != nil {
		return err
	}
	p.open(track, f.place, "fault")
	if f.exec != 0 {
		p.event = appendFixed(p.event, eventFlow, faultFlow|f.exec)
	}
	for _, flow := range f.flows {
		p.event = appendFixed(p.event, eventFlow, requestFlow|flow)
	}
	if err := p.emit(f.start); err != nil {
		return err
	}
	return p.shut(track, f.end)
}

// request writes a request to a track on which none is in progress at its beginning. They come in the order of their
// ends.
func (p *perfetto) request(q *request) error {
	lane := -1
	for i, end := range p.requests {
		if end <= q.start && (lane < 0 || end > p.requests[lane]) {
			lane = i
		}
	}
	if lane < 0 {
		lane = len(p.requests)
		p.requests = append(p.requests, 0)
	}
	p.requests[lane] = q.end
	track, err := p.track("Block requests", fmt.Sprintf("request %d at a time", lane+1), 4, "")
	if err != nil {
		return err
	}
	p.open(track, q.place, "request")
	for _, flow := range q.flows {
		p.event = appendFixed(p.event, eventFlow, requestFlow|flow)
	}
	p.note("bytes", q.bytes)
	if err := p.emit(q.start); err != nil {
		return err
	}
	return p.shut(track, q.end)
}

func (p *perfetto) instant(i *instant) error {
	track, err := p.track("", "Notes", 0, "")
	if err != nil {
		return err
	}
	p.event = appendVarint(appendVarint(p.event[:0], eventType, eventInstant), eventTrack, track)
	p.event = appendText(p.event, eventName, i.name)
	return p.emit(i.at)
}

// close writes what was left out as a note at the beginning of the run.
func (p *perfetto) close(r *TimelineResult) error {
	if text := r.LeftOut(); text != "" {
		if err := p.instant(&instant{p.about.mono, text}); err != nil {
			return err
		}
	}
	return p.flush()
}
