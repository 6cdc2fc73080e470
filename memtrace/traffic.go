package memtrace

// Traffic adds up what touches moved: over time, by execution of a graph, and by region. Its memory does not grow
// with the length of a trace, but for the executions that are kept. It is for one goroutine.
type Traffic struct {
	// Bins is what was moved in equal times from First on, of WidthNS each. The width doubles when there are more
	// than maxBins.
	Bins    []Moved
	First   int64
	WidthNS int64
	// Steps are the first MaxSteps executions of graphs; Uncounted is how many more there were.
	Steps     []Step
	Uncounted int64
	current   Step
	isBegun   bool
	regions   []perStep
	now       int64 // time of the access before, and its bin
	bins      int
}

// Bounds of what a Traffic keeps.
const (
	maxBins  = 1 << 12
	MaxSteps = 1 << 16
)

// firstWidth is how long a bin is before there are too many.
const firstWidth = int64(1e6)

// Moved is bytes by type of region.
type Moved struct{ Read, Written [regionTypes]uint64 }

// Of is what was read and written in regions of a type.
func (m *Moved) Of(t RegionType) (read, written uint64) { return m.Read[t], m.Written[t] }

// Add adds what was moved elsewhere.
func (m *Moved) Add(o *Moved) {
	for t := range regionTypes {
		m.Read[t] += o.Read[t]
		m.Written[t] += o.Written[t]
	}
}

// Step is one execution of a graph.
type Step struct {
	Graph int64 // its number in the trace
	Token int64 // that it computes, or the last of those; negative: none is known
	NS    int64
	Moved
}

// perStep is a region's bytes in the step in which it was touched last, and in those before.
type perStep struct {
	graph   int64
	isBegun bool
	now     uint64
	steps   Tally
}

// Add takes a touch in. graph is the number of the graph's execution, token of the token; negative: not known.
func (t *Traffic) Add(a *Touch, graph, token int64) {
	if a.Op == OpAlloc || a.Op == OpFree {
		return
	}
	if a.NS != t.now || t.WidthNS == 0 {
		t.now, t.bins = a.NS, t.bin(a.NS, a.WindowNS)
	}
	bin := &t.Bins[t.bins]
	isWrite := a.Op == OpWrite
	if isWrite {
		bin.Written[a.Type] += a.Size
	} else {
		bin.Read[a.Type] += a.Size
	}
	if graph < 0 {
		return
	}
	if !t.isBegun || t.current.Graph != graph {
		t.keep()
		t.current, t.isBegun = Step{Graph: graph, Token: token, NS: a.NS}, true
	}
	t.current.Token = max(t.current.Token, token)
	if isWrite {
		t.current.Written[a.Type] += a.Size
	} else {
		t.current.Read[a.Type] += a.Size
	}
	if a.Region >= 0 && a.Region < maxDense {
		t.region(a, graph)
	}
}

// bin is the number of the one of a time. None is shorter than what touches add up over.
func (t *Traffic) bin(ns, window int64) int {
	if t.WidthNS == 0 {
		t.First, t.WidthNS = ns, firstWidth
	}
	for t.WidthNS < min(window, maxSpan) {
		t.widen()
	}
	for max(ns-t.First, 0)/t.WidthNS >= maxBins {
		t.widen()
	}
	at := int(max(ns-t.First, 0) / t.WidthNS)
	for len(t.Bins) <= at {
		t.Bins = append(t.Bins, Moved{})
	}
	return at
}

// widen makes one of every two bins.
func (t *Traffic) widen() {
	for i := range t.Bins {
		if i%2 == 1 {
			t.Bins[i/2].Add(&t.Bins[i])
		} else {
			t.Bins[i/2] = t.Bins[i]
		}
	}
	t.Bins = t.Bins[:(len(t.Bins)+1)/2]
	t.WidthNS *= 2
}

// keep keeps the step that has ended.
func (t *Traffic) keep() {
	switch {
	case !t.isBegun:
	case len(t.Steps) < MaxSteps:
		t.Steps = append(t.Steps, t.current)
	default:
		t.Uncounted++
	}
}

func (t *Traffic) region(a *Touch, graph int64) {
	if a.Region >= len(t.regions) {
		t.regions = append(t.regions, make([]perStep, a.Region+1-len(t.regions))...)
	}
	r := &t.regions[a.Region]
	if !r.isBegun || r.graph != graph {
		r.end()
		r.graph, r.isBegun = graph, true
	}
	r.now += a.Size
}

func (r *perStep) end() {
	if r.isBegun {
		r.steps.Add(int64(r.now), 1)
	}
	r.now = 0
}

// Finish ends the trace. It may be called twice.
func (t *Traffic) Finish() {
	t.keep()
	t.isBegun = false
	for i := range t.regions {
		t.regions[i].end()
		t.regions[i].isBegun = false
	}
}

// PerStep is how many bytes of a region were accessed in an execution that accessed it. It is valid when the trace
// has ended.
func (t *Traffic) PerStep(region int) Tally {
	if region < 0 || region >= len(t.regions) {
		return Tally{}
	}
	return t.regions[region].steps
}
