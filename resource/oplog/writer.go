package oplog

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Hot path: no allocation per event.

// writer makes events, one at a time, and writes them.
type writer struct {
	rundir.Line // the event in the making
	kind        resource.Kind
	marks       []mark
	out         *rundir.LineWriter
	session     []byte // `"session_id":"…"`
	offset      int64  // from monotonic to Unix time
	newest      atomic.Int64
	ids         map[string]int64 // the last number of each start of an id
	levels      []levelFrom      // the last one holds now; those before it, of executions that are not recorded yet
	legacy      bool             // LRI's keys are filled by its formulas
}

// mark says how a figure of the event in the making was obtained.
type mark struct {
	key    string
	source resource.Source
}

// levelFrom is a level and when it began to hold.
type levelFrom struct {
	ns    int64
	level resource.Level
}

func newWriter(o *Options) (*writer, error) {
	w := &writer{
		session: rundir.AppendString([]byte(`"session_id":`), o.SessionID), offset: o.UnixOffset,
		ids: map[string]int64{}, levels: []levelFrom{{level: o.Level}}, legacy: o.Legacy,
	}
	lines := o.Lines
	lines.Kinds, lines.Limits, lines.Loss = resource.Kinds(), limits(o.PerSecond), w.loss
	var err error
	if w.out, err = rundir.NewLineWriter(lines); err != nil {
		return nil, fmt.Errorf("record resource events: %w", err)
	}
	return w, nil
}

// noCtx is the context of events that belong to none.
const noCtx = -1

// begin starts an event of a time, ctx being that of a context or noCtx.
func (w *writer) begin(kind resource.Kind, mono, ctx int64) {
	w.kind, w.marks = kind, w.marks[:0]
	w.head(&w.Line, kind, mono, ctx)
}

// head writes what every event begins with.
func (w *writer) head(l *rundir.Line, kind resource.Kind, mono, ctx int64) {
	unix := mono + w.offset
	l.Begin()
	l.String("event", kind.String())
	l.Key("timestamp")
	l.Quoted(unix / 1000)
	l.Int("unix_ns", unix)
	l.Int("mono_ns", mono)
	l.Fields(w.session)
	if ctx != noCtx {
		l.Int("ctx", ctx)
	}
}

// mark notes the source of figures of the event, where it is not that of the event's weakest figure.
func (w *writer) mark(source resource.Source, keys ...string) {
	for _, key := range keys {
		w.marks = append(w.marks, mark{key, source})
	}
}

// measured adds a measured figure.
func (w *writer) measured(key string, v int64) {
	w.Int(key, v)
	w.mark(resource.Measured, key)
}

// weakest is the source of the weakest figure of an event that has figures of LRI.
func (w *writer) weakest() resource.Source {
	if w.legacy {
		return resource.Estimated
	}
	return resource.Computed
}

// put ends an event whose weakest figure is of a source, and writes it.
func (w *writer) put(weakest resource.Source) {
	w.String("source", weakest.String())
	differs := false
	for _, m := range w.marks {
		if m.source == weakest {
			continue
		}
		if !differs {
			w.Open("sources")
			differs = true
		}
		w.String(m.key, m.source.String())
	}
	if differs {
		w.Shut()
	}
	w.out.Append(int(w.kind), w.End())
}

// noteTime notes the time of what came last.
func (w *writer) noteTime(mono int64) {
	if mono > w.newest.Load() {
		w.newest.Store(mono)
	}
}

// loss records lines that were lost. It may run on the timer of the file's writer.
func (w *writer) loss(dst []byte, lost rundir.LineLoss) []byte {
	var l rundir.Line
	w.head(&l, resource.KindLoss, w.newest.Load(), noCtx)
	l.String("kind", resource.Kind(lost.Kind).String())
	l.String("cause", lost.Cause)
	l.Uint("count", lost.Count)
	l.String("source", resource.Measured.String())
	return append(dst, l.End()...)
}

// level is the level that holds now.
func (w *writer) level() resource.Level { return w.levels[len(w.levels)-1].level }

// levelAt is the level that held at a time.
func (w *writer) levelAt(ns int64) resource.Level {
	for i := len(w.levels) - 1; i > 0; i-- {
		if w.levels[i].ns <= ns {
			return w.levels[i].level
		}
	}
	return w.levels[0].level
}

// resourceID adds LRI's id of a resource, which no other event has: device, kind, layer, component, number.
// start is the part before the number.
func (w *writer) resourceID(start string, mono int64) { writeID(&w.Line, start, w.number(start, mono)) }

// number is what an id ends with: the microseconds of a time or, where an id has these, the next ones that none has.
func (w *writer) number(start string, mono int64) int64 {
	n := max((mono+w.offset)/1000, w.ids[start]+1)
	w.ids[start] = n
	return n
}

func writeID(l *rundir.Line, start string, number int64) {
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
