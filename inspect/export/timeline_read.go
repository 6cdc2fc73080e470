package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// sink takes what a run recorded, in the order of its log.
type sink interface {
	execution(x *execution) error
	token(t *token) error
	counter(c *counter) error
	fault(f *fault) error
	request(q *request) error
	instant(i *instant) error
	close(r *TimelineResult) error
}

// ignoring is a sink of nothing: those that take some of it embed it.
type ignoring struct{}

func (ignoring) token(*token) error          { return nil }
func (ignoring) counter(*counter) error      { return nil }
func (ignoring) fault(*fault) error          { return nil }
func (ignoring) request(*request) error      { return nil }
func (ignoring) instant(*instant) error      { return nil }
func (ignoring) close(*TimelineResult) error { return nil }

// token is a generated token, from the one before it to the graph that takes it as input.
type token struct {
	ctx        uint32
	seq        int32
	start, end int64
	index      int64
	text       string // or its number
	first      bool   // the token before it is a prompt's
	flow       uint64 // number of the arrow to the graph that takes it as input
}

// counter is a value at a time.
type counter struct {
	name, unit string
	at         int64
	value      float64
}

// fault is a page fault that a thread waited for.
type fault struct {
	tid        int
	start, end int64
	place      string   // file, tensor or kind of memory
	exec       uint64   // 0: of none
	flows      []uint64 // numbers of the arrows to the requests that it waited for
}

// request is a block request that read a file.
type request struct {
	start, end int64
	place      string
	bytes      int64
	flows      []uint64 // numbers of the arrows from faults
}

// instant is something that happened at a time.
type instant struct {
	at   int64
	name string
}

// maxSamples bounds the values of one counter, the page faults and the block requests.
const maxSamples = 100_000

// reader turns events into what a sink takes.
type reader struct {
	assembly
	o       TimelineOptions
	to      sink
	event   event
	caches  map[string]*kv  // by context and kind
	values  map[string]*run // counters so far
	inputs  []uint64        // flows of the tokens that execution inputOf takes as input
	inputOf uint64
	written *int64 // bytes; nil: nothing is written
	// isBounded is of a sink that bounds what it holds itself, and takes no parts of executions.
	isBounded bool
	share     float64 // of the log that was read
	result    TimelineResult
}

// kv is how many cells of a cache are used. Every operation is reported by each layer; one of them is counted.
type kv struct {
	layer int
	used  int64
}

// run is what was written of a counter.
type run struct {
	n     int64
	every int64 // ns between two values that are written, at least
	last  int64
}

// TimelineResult says what was written.
type TimelineResult struct {
	Graphs, TimedGraphs int64
	Tokens              int64
	Spans               int64 // graphs, layers, components and ops
	SpansLeft           int64 // of them, left out to hold TimelineOptions.MaxBytes: ops first
	Samples             int64 // values of counters
	SamplesLeft         int64 // beyond the bound of a counter
	Faults, FaultsLeft  int64
	Requests            int64 // of block devices
	RequestsLeft        int64
	Incomplete          int64  // parts of executions whose graph event is lost
	Untimed             int64  // graphs whose time is not known, as of most of a prompt on a device
	LostGraphs, Lost    uint64 // events of graphs, and others, that the run lost by its own count
	BadLines            int64
	Bytes               int64
	GivenBack           string // how much of the log was; "" where it is whole
}

// readEvents hands on what the log has, and reports how many of its bytes were read.
func (r *reader) readEvents(ctx context.Context, path string) error {
	tail, err := resources.OpenTail(path)
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = ctx.Done()
	total, n := tail.Unread(), 0
	for line, err := range tail.All() {
		if err != nil {
			return fmt.Errorf("read events of %s: %w", path, err)
		}
		if n%256 == 0 {
			done := total - tail.Unread()
			r.share = float64(done) / float64(max(total, 1))
			if r.o.Progress != nil {
				r.o.Progress(done, total)
			}
		}
		n++
		if line.Err != nil {
			r.result.BadLines++
			continue
		}
		if err := r.line(line.Text); err != nil {
			return err
		}
	}
	r.drop()
	r.result.Incomplete, r.result.Untimed = r.incomplete, r.untimed
	return nil
}

func (r *reader) line(text []byte) error {
	kind, ok := resources.KindOf(text)
	if !ok {
		r.result.BadLines++
		return nil
	}
	switch kind {
	case resource.KindLayerBegin, resource.KindLayerEnd, resource.KindComponentBegin, resource.KindComponentEnd,
		resource.KindCompute:
		if r.isBounded {
			return nil
		}
	case resource.KindGraph, resource.KindOutputToken, resource.KindInputTokens, resource.KindKV,
		resource.KindAllocation, resource.KindDeallocation, resource.KindGPU, resource.KindRAPL, resource.KindLoss:
	default:
		return nil
	}
	if err := r.event.read(text, kind); err != nil {
		r.result.BadLines++
		return nil
	}
	return r.readEvent(kind, &r.event)
}

func (r *reader) readEvent(kind resource.Kind, e *event) error {
	switch kind {
	case resource.KindLayerBegin:
		r.beginExecution(e)
		r.layer = r.open(e, depthLayer, "layer "+strconv.Itoa(e.LayerID))
	case resource.KindComponentBegin:
		r.beginExecution(e)
		r.part = r.open(e, depthComponent, e.ComponentType)
	case resource.KindLayerEnd:
		r.shut(e, &r.layer)
	case resource.KindComponentEnd:
		r.shut(e, &r.part)
	case resource.KindCompute:
		r.compute(e)
	case resource.KindGraph:
		return r.graph(e)
	case resource.KindOutputToken:
		return r.output(e)
	case resource.KindInputTokens:
		return r.to.instant(&instant{e.MonoNS, fmt.Sprintf("prompt: %d tokens", len(e.TokenIDs))})
	case resource.KindKV:
		return r.cells(e)
	case resource.KindAllocation, resource.KindDeallocation:
		if e.LiveBytes != nil && e.TensorBytes == nil { // a weight lies in a buffer that has an event of its own
			return r.value("memory of backends", "bytes", e.MonoNS, float64(*e.LiveBytes))
		}
	case resource.KindGPU:
		return r.gpu(e)
	case resource.KindRAPL:
		if e.WindowNS > 0 {
			return r.value("power of "+e.Domain, "W", e.MonoNS, e.EnergyJ*1e9/float64(e.WindowNS))
		}
	case resource.KindLoss:
		if e.Kind == resource.KindGraph.String() {
			r.result.LostGraphs += e.Count
		} else {
			r.result.Lost += e.Count
		}
		return r.to.instant(&instant{e.MonoNS, fmt.Sprintf("%d %s events lost: %s", e.Count, e.Kind, e.Cause)})
	}
	return nil
}

// graph hands an execution on.
func (r *reader) graph(e *event) error {
	x := r.finish(e)
	if x == nil {
		return nil
	}
	if x.inputs = nil; r.inputOf == x.number {
		x.inputs = r.inputs
	}
	r.thin(x)
	r.result.Graphs++
	r.result.Spans += int64(len(x.spans))
	if x.timed {
		r.result.TimedGraphs++
	}
	err := r.to.execution(x)
	r.clear()
	return err
}

// thin leaves the ops of an execution out where the file has become larger than its share of the bound, and all of
// its parts where that does not suffice.
func (r *reader) thin(x *execution) {
	if r.o.MaxBytes <= 0 {
		return
	}
	beyond := float64(*r.written)/float64(r.o.MaxBytes) - 0.95*r.share
	if beyond <= 0.02 {
		return
	}
	all := len(x.spans)
	x.spans = slices.DeleteFunc(x.spans, func(s span) bool { return s.depth == depthOp })
	if beyond > 0.04 {
		x.spans = x.spans[:1]
	}
	r.result.SpansLeft += int64(all - len(x.spans))
}

func (r *reader) output(e *event) error {
	r.result.Tokens++
	t := token{ctx: e.Ctx, seq: -1, start: e.MonoNS, end: e.MonoNS, index: e.TokenIndex, first: e.First,
		text: strconv.Itoa(int(e.TokenID))}
	if e.SeqID != nil {
		t.seq = *e.SeqID
	}
	if e.TokenText != nil {
		t.text = strconv.Quote(*e.TokenText)
	}
	if e.LatencyNS != nil {
		t.start -= *e.LatencyNS
	}
	if e.Exec != r.inputOf {
		r.inputOf, r.inputs = e.Exec, r.inputs[:0]
	}
	t.flow = uint64(r.result.Tokens)
	r.inputs = append(r.inputs, t.flow)
	return r.to.token(&t)
}

func (r *reader) cells(e *event) error {
	key := fmt.Sprintf("KV cells used, context %d, %s", e.Ctx, e.Cache)
	c := r.caches[key]
	if c == nil {
		c = &kv{layer: e.LayerID}
		r.caches[key] = c
	}
	if c.layer != e.LayerID {
		return nil
	}
	switch e.CacheOperation {
	case "allocate":
		c.used += e.Cells
	case "evict":
		c.used = max(0, c.used-e.Cells) // of a log whose beginning is gone
	default:
		return nil
	}
	return r.value(key, "cells", e.MonoNS, float64(c.used))
}

func (r *reader) gpu(e *event) error {
	name := fmt.Sprintf("GPU %d ", e.GPUIndex)
	var failed error
	add := func(what, unit string, value float64) {
		failed = errors.Join(failed, r.value(name+what, unit, e.MonoNS, value))
	}
	if e.Utilization != nil {
		add("utilization", "%", *e.Utilization)
	}
	if e.MemoryUsed != nil {
		add("memory used", "bytes", float64(*e.MemoryUsed))
	}
	if e.SMClock != nil {
		add("SM clock", "MHz", float64(*e.SMClock))
	}
	if e.PowerW != nil {
		add("power", "W", *e.PowerW)
	}
	return failed
}

// value hands on a counter's value. Once it has half of maxSamples, values are left out that come too soon after the
// one before for the other half to suffice.
func (r *reader) value(name, unit string, at int64, value float64) error {
	if r.isBounded {
		return r.to.counter(&counter{name, unit, at, value})
	}
	c := r.values[name]
	if c == nil {
		c = &run{every: r.o.length / (maxSamples / 2)}
		r.values[name] = c
	}
	if c.n >= maxSamples/2 && (at-c.last < c.every || c.n >= maxSamples) {
		r.result.SamplesLeft++
		return nil
	}
	c.n, c.last = c.n+1, at
	r.result.Samples++
	return r.to.counter(&counter{name, unit, at, value})
}

// lines reads a file of JSON lines; one that is not there has none.
func (r *reader) lines(ctx context.Context, path string, each func([]byte) error) error {
	file, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	tail, err := resources.OpenTail(path)
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = ctx.Done()
	for line, err := range tail.All() {
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if line.Err != nil || len(bytes.TrimSpace(line.Text)) == 0 {
			r.result.BadLines++
			continue
		}
		if err := each(line.Text); err != nil {
			return err
		}
	}
	return nil
}

// LeftOut says what is not in the file; "" where everything is.
func (r *TimelineResult) LeftOut() string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(r.SpansLeft, "ops and components, to hold the size")
	add(r.SamplesLeft, "values of counters")
	add(r.FaultsLeft, "page faults")
	add(r.RequestsLeft, "block requests")
	add(int64(r.LostGraphs), "graphs, which the run lost")
	add(int64(r.Lost), "other events, which the run lost")
	add(r.Incomplete, "parts of graphs whose own event is lost")
	add(r.Untimed, "graphs, whose time is not known")
	add(r.BadLines, "lines that cannot be read")
	text := strings.Join(parts, ", ")
	if text != "" {
		text = "left out: " + text
	}
	if text != "" && r.GivenBack != "" {
		text += "; "
	}
	return text + r.GivenBack
}
