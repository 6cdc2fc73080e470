package ggmlhooks

import "slices"

// Execution is one execution of a graph with all that was reported of it. Recorders may read it during the call that
// hands it to them; only its Graph stays valid.
type Execution struct {
	Exec
	Graph *Graph // hides the number of the same name: that is Graph.ID
	Rows  []Row  // its tokens
	Begun []RequestBegin
	// Phase is prefill where any row is a prompt's; setup once the execution was discarded.
	Phase Phase
	// Undecided is true if it may still turn out to be set-up. A [Decided] recorder gets it so only where too much was
	// held back, and then a [Retractor] hears of the outcome; one of [Tensors] also where their slots were needed.
	Undecided bool
	Drafts    bool // it is a draft model's
	Timed     bool // BeginNS and Nodes of Times were reported
	Times     Times
	Inputs    []Input
	Routing   []Capture // small tensors that show which experts were chosen; Release is nil
	Ended     bool      // false: it began, and its end was lost or never came
	CutOff    bool      // its end never came, for the program ended before
	End       ExecEnd
	// DoneNS is when a device had computed it and SyncNS how long the program waited for that; 0 = not known.
	DoneNS, SyncNS int64
	// UntilNS is when the next execution was handed to the device, or all were done; 0 = not known.
	UntilNS   int64
	computing bool      // a device may still compute it
	started   bool      // the recorder of tensors has it
	held      []Capture // tensors that wait in their slots until it is started or discarded
}

// BeganNS is when ggml was given the graph, or where that is not known when the program was about to.
func (x *Execution) BeganNS() int64 {
	switch {
	case x.Times.BeginNS != 0:
		return x.Times.BeginNS
	case x.End.BeginNS != 0:
		return x.End.BeginNS
	}
	return x.MonoNS
}

// begin makes an execution new, in its old memory.
func (x *Execution) begin(e *Exec, g *Graph) {
	was := *x
	*x = Execution{
		Exec: *e, Graph: g, Undecided: e.Provisional, Rows: was.Rows[:0], Begun: was.Begun[:0],
		Times: Times{Nodes: was.Times.Nodes[:0]}, Inputs: was.Inputs[:0], Routing: was.Routing[:0],
		End: ExecEnd{Losses: was.End.Losses[:0]}, held: was.held,
	}
	x.Tokens, x.Pos = append(was.Tokens[:0], e.Tokens...), append(was.Pos[:0], e.Pos...)
	x.Outputs = append(was.Outputs[:0], e.Outputs...)
}

// extend returns a further element of a slice, in its old memory if there is some.
func extend[T any](s []T) ([]T, *T) {
	if len(s) < cap(s) {
		s = s[:len(s)+1]
	} else {
		s = append(s, *new(T))
	}
	return s, &s[len(s)-1]
}

func (x *Execution) end(e *ExecEnd) {
	losses := append(x.End.Losses[:0], e.Losses...)
	x.Ended, x.End, x.computing = true, *e, e.Async && e.Status == 0
	x.End.Losses = losses
}

// Failed reports whether an execution failed or was aborted: how much of it was computed is not known, and llama.cpp
// removes its tokens from the cache.
func (x *Execution) Failed() bool { return x.End.Status != 0 }

func (x *Execution) input(in *Input) {
	var to *Input
	x.Inputs, to = extend(x.Inputs)
	values, ranges := append(to.Values[:0], in.Values...), append(to.Ranges[:0], in.Ranges...)
	*to = *in
	to.Values, to.Ranges = values, ranges
}

func (x *Execution) routed(c *Capture) {
	var to *Capture
	x.Routing, to = extend(x.Routing)
	data := append(to.Data[:0], c.Data...)
	*to = *c
	to.Data, to.Release = data, nil
}

// bytes is about how much memory an execution takes.
func (x *Execution) bytes() int64 {
	n := 512 + 84*len(x.Rows) + 24*len(x.Times.Nodes)
	for i := range x.Inputs {
		n += 8*len(x.Inputs[i].Values) + 12*len(x.Inputs[i].Ranges)
	}
	for i := range x.Routing {
		n += len(x.Routing[i].Data)
	}
	return int64(n)
}

// shed gives up what only [Decided] recorders need.
func (x *Execution) shed() { x.Times.Nodes, x.Inputs, x.Routing = nil, nil, nil }

// ready reports whether it can be recorded.
func (x *Execution) ready() bool { return x.Ended && !x.Undecided && !x.computing }

// Plans keeps what a [Decided] recorder worked out of graphs: that of a graph may be needed after its context has a
// newer one, until an execution of that is recorded.
type Plans[P any] struct{ of map[uint32][]planned[P] }

type planned[P any] struct {
	graph uint64
	plan  P
}

// Put keeps the plan of a graph.
func (p *Plans[P]) Put(g *Graph, plan P) {
	if p.of == nil {
		p.of = map[uint32][]planned[P]{}
	}
	p.of[g.Ctx] = append(p.of[g.Ctx], planned[P]{g.ID, plan})
}

// Of returns the plan of an execution's graph, and forgets those before it.
func (p *Plans[P]) Of(x *Execution) P {
	all := p.of[x.Ctx]
	at := slices.IndexFunc(all, func(one planned[P]) bool { return one.graph == x.Graph.ID })
	p.of[x.Ctx] = slices.Delete(all, 0, at)
	return p.of[x.Ctx][0].plan
}
