package export

import (
	"fmt"

	"github.com/llamatap/llamatap/resource"
)

// assembly puts the events of an execution together: its parts come before its graph.
type assembly struct {
	x          execution
	layer      int   // index of the span that is open; -1: none
	part       int   // of the component's
	incomplete int64 // parts of executions whose graph event did not come
	untimed    int64 // executions whose graph event has no duration
}

// beginExecution begins another execution where the event is of one.
func (a *assembly) beginExecution(e *event) {
	if e.Exec != a.x.number || e.Ctx != a.x.ctx {
		a.drop()
		a.x.number, a.x.ctx = e.Exec, e.Ctx
	}
}

// drop counts the parts of an execution whose graph event did not come, and forgets them.
func (a *assembly) drop() {
	a.incomplete += int64(len(a.x.spans))
	a.clear()
}

func (a *assembly) clear() {
	a.x = execution{spans: a.x.spans[:0]}
	a.layer, a.part = -1, -1
}

// open begins a span, whose end is not known yet, and returns its index.
func (a *assembly) open(e *event, depth int, name string) int {
	a.x.spans = append(a.x.spans, span{start: e.MonoNS, end: -1, depth: depth, name: name, component: e.ComponentType,
		layer: e.LayerID, flops: -1, read: -1, written: -1})
	return len(a.x.spans) - 1
}

func (a *assembly) shut(e *event, at *int) {
	if *at >= 0 && e.Exec == a.x.number && e.Ctx == a.x.ctx {
		a.x.spans[*at].end = e.MonoNS
	}
	*at = -1
}

// compute adds an op. What a component did as a whole belongs to its span.
func (a *assembly) compute(e *event) {
	whole := e.TimeSource == resource.TimeGraph || e.TimeSource == resource.TimeSync
	if e.Within != "" || e.DurationNS == nil || whole {
		return
	}
	a.beginExecution(e)
	if e.Operation == "range" {
		if a.part >= 0 && a.x.spans[a.part].start == e.MonoNS {
			s := &a.x.spans[a.part]
			s.flops, s.read, s.written = orMinusOne(e.FLOPs), orMinusOne(e.BytesRead), orMinusOne(e.BytesWritten)
			return
		}
		e.Operation = fmt.Sprintf("%d ops", e.NodeCount)
	}
	a.x.spans = append(a.x.spans, span{start: e.MonoNS, end: e.MonoNS + *e.DurationNS, depth: depthOp,
		name: e.Operation, tensor: e.Name, component: e.ComponentType, layer: e.LayerID, flops: orMinusOne(e.FLOPs),
		read: orMinusOne(e.BytesRead), written: orMinusOne(e.BytesWritten)})
}

// finish ends the execution of a graph event. It returns nil where the event has no duration; else what it returns is
// valid until the next event.
func (a *assembly) finish(e *event) *execution {
	a.beginExecution(e)
	if e.DurationNS == nil {
		a.untimed++
		a.clear()
		return nil
	}
	x := &a.x
	x.phase, x.tokens, x.timed = e.Phase, e.Tokens, e.TimedNS != nil
	parts := x.spans[:0]
	for _, s := range x.spans {
		if s.end >= s.start {
			parts = append(parts, s)
		}
	}
	name := e.Phase
	if e.Tokens != 1 {
		name = fmt.Sprintf("%s, %d tokens", e.Phase, e.Tokens)
	}
	// The event's time is the entry of the graph. Its duration, and its first part, begin a moment later, when ggml was
	// given the graph.
	start := e.MonoNS
	for i := range parts {
		if i == 0 || parts[i].start < start {
			start = parts[i].start
		}
	}
	x.spans = nest(append(parts, span{start: start, end: start + *e.DurationNS, depth: depthGraph, name: name,
		layer: -1, flops: orMinusOne(e.FLOPs), read: orMinusOne(e.BytesRead), written: orMinusOne(e.BytesWritten)}))
	return x
}
