package oplog

import (
	"strconv"
	"sync/atomic"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/jsonl"
)

// Hot path: no allocation per event.

// header writes what every event begins with.
type header struct {
	session []byte // `"session_id":"…"`
	offset  int64  // from monotonic to Unix time
	newest  atomic.Int64
	ids     map[string]int64 // the last number of each start of an id
}

func newHeader(session string, offset int64) *header {
	return &header{session: jsonl.AppendString([]byte(`"session_id":`), session), offset: offset, ids: map[string]int64{}}
}

// noCtx is the context of events that belong to none.
const noCtx = -1

// begin starts an event of a time.
func (h *header) begin(l *jsonl.Line, kind resource.Kind, mono, ctx int64) {
	unix := mono + h.offset
	l.Begin()
	l.String("event", kind.String())
	l.Key("timestamp")
	l.Quoted(unix / 1000)
	l.Int("unix_ns", unix)
	l.Int("mono_ns", mono)
	l.Fields(h.session)
	if ctx != noCtx {
		l.Int("ctx", ctx)
	}
}

// mark says how a figure of the event in the making was come by.
type mark struct {
	key    string
	source resource.Source
}

// begin starts an event of a time, ctx being that of a context or noCtx.
func (r *Recorder) begin(kind resource.Kind, mono, ctx int64) {
	r.marks = r.marks[:0]
	r.head.begin(&r.line, kind, mono, ctx)
}

// mark notes how figures of the event were come by, where they are not like its weakest.
func (r *Recorder) mark(source resource.Source, keys ...string) {
	for _, key := range keys {
		r.marks = append(r.marks, mark{key, source})
	}
}

// put ends an event whose weakest figure is of a source, and writes it.
func (r *Recorder) put(kind resource.Kind, weakest resource.Source) {
	l := &r.line
	l.String("source", weakest.String())
	differs := false
	for _, m := range r.marks {
		if m.source == weakest {
			continue
		}
		if !differs {
			l.Open("sources")
			differs = true
		}
		l.String(m.key, m.source.String())
	}
	if differs {
		l.Shut()
	}
	r.out.Append(int(kind), l.End())
}

// see notes the time of what came last.
func (h *header) see(mono int64) {
	if mono > h.newest.Load() {
		h.newest.Store(mono)
	}
}

// loss records lines that were lost. It may run on the writer's timer.
func (h *header) loss(dst []byte, lost jsonl.Loss) []byte {
	var l jsonl.Line
	h.begin(&l, resource.KindLoss, h.newest.Load(), noCtx)
	l.String("kind", resource.Kind(lost.Kind).String())
	l.String("cause", lost.Cause)
	l.Uint("count", lost.Count)
	l.String("source", resource.Measured.String())
	return append(dst, l.End()...)
}

// resourceID adds system B's id of a resource, which no other event has: device, kind, layer, component, number.
// start is the part up to the last.
func (h *header) resourceID(l *jsonl.Line, start string, mono int64) {
	writeID(l, start, h.number(start, mono))
}

// number is what an id ends with: the microseconds of a time or, where an id has these, the next ones that none has.
func (h *header) number(start string, mono int64) int64 {
	n := max((mono+h.offset)/1000, h.ids[start]+1)
	h.ids[start] = n
	return n
}

func writeID(l *jsonl.Line, start string, number int64) {
	l.Key("resource_id")
	l.Append(func(dst []byte) []byte {
		return append(strconv.AppendInt(append(append(dst, '"'), start...), number, 10), '"')
	})
}

// idStart is the part of a resource's id that does not change.
func idStart(device, kind string, layer int, component string) string {
	return plain(device) + "_" + kind + "_layer_" + strconv.Itoa(layer) + "_" + component + "_"
}

// plain makes a device's name one of small letters, digits and underscores.
func plain(device string) string {
	if device == "" {
		return "unknown"
	}
	name := []byte(device)
	for i, c := range name {
		switch {
		case c >= 'A' && c <= 'Z':
			name[i] = c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		default:
			name[i] = '_'
		}
	}
	return string(name)
}

const mib = 1 << 20
