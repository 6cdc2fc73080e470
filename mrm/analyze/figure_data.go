package analyze

import (
	"github.com/llamatap/llamatap/memtrace"
)

// figureData is what is drawn. What is nil or empty is not drawn.
type figureData struct {
	Title string // of the run, in every picture: its model, quantisation and context
	// Note is printed small below every picture: prompt, type of cache and id of the run; "" for none.
	Note string
	// Warning is printed above every picture: why the run is not to be published; "" where it may be.
	Warning string
	Lives   []typeLives
	// Resolution is by how many seconds times may be wrong: the mean length of a graph, for what happens in one has
	// the time of its beginning.
	Resolution float64
	Heat       *heatData
	Working    *workingData
	Phases     []phaseBytes
	KV         *kvLivesData
	Report     *Report
	Subjects   []subject
}

// typeLives are how long data of a type of regions is needed.
type typeLives struct {
	Type     string
	Survival *memtrace.Survival
}

// heatData is what was touched, by place and time.
type heatData struct {
	BinS   float64 // how long a column of cells is, in seconds
	Bins   int
	Panels []heatPanelData
}

// heatPanelData is the places of a type of regions.
type heatPanelData struct {
	Type  string
	Bytes float64 // of all places: the height of the panel
	Rows  int
	// Touched is the bytes that were touched in each cell, row by row from the lowest place on, Bins to a row. A
	// byte counts each time.
	Touched []float64
}

// workingData is how many different bytes were touched in windows of time, in order.
type workingData struct {
	WindowS     float64
	Granularity int64 // bytes that count as one
	Types       []workingType
}

// workingType is the working set of a type of regions.
type workingType struct {
	Type  string
	Bytes []float64 // by window
}

// phaseBytes is what was read and written in a phase, in regions of a type.
type phaseBytes struct {
	Phase, Type   string
	Read, Written float64
}

// kvLivesData are the lives of the blocks of a cache.
type kvLivesData struct {
	Name    string
	Blocks  int64
	Cells   int64 // of a block
	Seconds float64
	Lives   []kvLife
	// More is how many lives there are beside these.
	More int64
}

// kvLife is one of them.
type kvLife struct {
	Block    int64
	From, To float64 // times since the run began
	LastRead float64 // 0: it was never read
	Reason   string  // why it was evicted; "": it was not
}
