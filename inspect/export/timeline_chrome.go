package export

import (
	"encoding/json"
	"fmt"
)

// chrome writes the Trace Event Format: an array of events of one line each. Times are microseconds.
type chrome struct {
	w     *counted
	named map[[2]int]bool
	any   bool
	// requests is how many block requests were written.
	requests uint64
}

// Processes of the trace, which are groups of tracks.
const (
	chromeModel    = 1
	chromeFaults   = 2
	chromeCounters = 3
	chromeRequests = 4
)

func newChrome(w *counted, a about) *chrome {
	fmt.Fprintf(w, "{\"displayTimeUnit\":\"ns\",\"otherData\":%s,\"traceEvents\":[", encode(map[string]any{
		"run": a.title, "model": a.model, "clock": "CLOCK_MONOTONIC"}))
	return &chrome{w: w, named: map[[2]int]bool{}}
}

// encode is for values that encoding/json can always write.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// chromeEvent is one event; absent keys are those that its kind does not have.
type chromeEvent struct {
	Name string         `json:"name,omitempty"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   micros         `json:"ts"`
	Dur  *micros        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	ID   uint64         `json:"id,omitempty"`
	BP   string         `json:"bp,omitempty"`
	S    string         `json:"s,omitempty"`
	Args map[string]any `json:"args,omitempty"`
}

// micros is nanoseconds that are written as microseconds.
type micros int64

func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", m/1000, m%1000), nil
}

func (c *chrome) put(e *chromeEvent) error {
	sep := ",\n"
	if !c.any {
		sep, c.any = "\n", true
	}
	if _, err := c.w.Write([]byte(sep)); err != nil {
		return err
	}
	_, err := c.w.Write(encode(e))
	return err
}

// name names a track once, and with its first track the group.
func (c *chrome) name(pid, tid int, group, name string) error {
	if c.named[[2]int{pid, tid}] {
		return nil
	}
	c.named[[2]int{pid, tid}] = true
	if !c.named[[2]int{pid, -1}] {
		c.named[[2]int{pid, -1}] = true
		if err := c.put(&chromeEvent{Ph: "M", Name: "process_name", PID: pid,
			Args: map[string]any{"name": group}}); err != nil {
			return err
		}
	}
	return c.put(&chromeEvent{Ph: "M", Name: "thread_name", PID: pid, TID: tid, Args: map[string]any{"name": name}})
}

// The tracks of a context are its graphs, then its sequences.
func chromeTrack(ctx uint32, seq int32) int { return int(ctx)*1024 + int(seq) + 2 }

func length(start, end int64) *micros { return new(micros(end - start)) }

func (c *chrome) execution(x *execution) error {
	track := chromeTrack(x.ctx, -2)
	if err := c.name(chromeModel, track, "model", fmt.Sprintf("context %d: graphs", x.ctx)); err != nil {
		return err
	}
	for i := range x.spans {
		s := &x.spans[i]
		args := map[string]any{}
		add := func(name string, n int64) {
			if n >= 0 {
				args[name] = n
			}
		}
		if s.depth == depthGraph {
			args["exec"], args["tokens"] = x.number, x.tokens
		}
		if s.layer >= 0 {
			args["layer"] = s.layer
		}
		if s.tensor != "" {
			args["tensor"] = s.tensor
		}
		add("flops", s.flops)
		add("bytes_read", s.read)
		add("bytes_written", s.written)
		err := c.put(&chromeEvent{Name: s.name, Cat: categories[s.depth], Ph: "X", TS: micros(s.start),
			Dur: length(s.start, s.end), PID: chromeModel, TID: track, Args: args})
		if err != nil {
			return err
		}
	}
	for _, flow := range x.inputs {
		if err := c.flow("f", x.spans[0].start, track, flow); err != nil {
			return err
		}
	}
	return nil
}

// flow is an arrow from a token to the graph that takes it as input: "s" begins it, "f" ends it.
func (c *chrome) flow(ph string, at int64, track int, id uint64) error {
	e := chromeEvent{Name: "input", Cat: "token", Ph: ph, TS: micros(at), PID: chromeModel, TID: track, ID: id}
	if ph == "f" {
		e.BP = "e"
	}
	return c.put(&e)
}

func (c *chrome) token(t *token) error {
	track := chromeTrack(t.ctx, t.seq)
	name := fmt.Sprintf("context %d: tokens of sequence %d", t.ctx, t.seq)
	if err := c.name(chromeModel, track, "model", name); err != nil {
		return err
	}
	err := c.put(&chromeEvent{Name: t.text, Cat: "token", Ph: "X", TS: micros(t.start), Dur: length(t.start, t.end),
		PID: chromeModel, TID: track, Args: map[string]any{"token_index": t.index}})
	if err != nil {
		return err
	}
	return c.flow("s", t.start, track, t.flow)
}

func (c *chrome) counter(v *counter) error {
	if err := c.name(chromeCounters, 0, "counters", "counters"); err != nil {
		return err
	}
	return c.put(&chromeEvent{Name: v.name, Ph: "C", TS: micros(v.at), PID: chromeCounters,
		Args: map[string]any{v.unit: v.value}})
}

func (c *chrome) fault(f *fault) error {
	if err := c.name(chromeFaults, f.tid, "page faults", fmt.Sprintf("thread %d", f.tid)); err != nil {
		return err
	}
	return c.put(&chromeEvent{Name: f.place, Cat: "fault", Ph: "X", TS: micros(f.start), Dur: length(f.start, f.end),
		PID: chromeFaults, TID: f.tid})
}

// request writes a request as an asynchronous event: they overlap.
func (c *chrome) request(q *request) error {
	if err := c.name(chromeRequests, 0, "block requests", "requests"); err != nil {
		return err
	}
	c.requests++
	e := chromeEvent{Name: q.place, Cat: "request", Ph: "b", TS: micros(q.start), PID: chromeRequests, ID: c.requests,
		Args: map[string]any{"bytes": q.bytes}}
	if err := c.put(&e); err != nil {
		return err
	}
	e.Ph, e.TS, e.Args = "e", micros(q.end), nil
	return c.put(&e)
}

func (c *chrome) instant(i *instant) error {
	return c.put(&chromeEvent{Name: i.name, Ph: "i", TS: micros(i.at), PID: chromeModel, S: "g"})
}

func (c *chrome) close(r *TimelineResult) error {
	left := r.LeftOut()
	_, err := fmt.Fprintf(c.w, "\n],\"metadata\":%s}\n", encode(map[string]any{"left_out": left}))
	return err
}
