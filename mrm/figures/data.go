package figures

import (
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm/whatif"
)

// Data is what is drawn. What is nil or empty is not drawn.
type Data struct {
	Title string // of the run, in every picture
	// Note stands small below every picture: what the title has no room for; "" for none.
	Note string
	// Warning stands above every picture, as of a run that is not to be published; "" for none.
	Warning string
	Lives   []Lives
	// Resolution is by how many seconds times may be wrong.
	Resolution float64
	Heat       *Heat
	Working    *Working
	Phases     []PhaseBytes
	KV         *KVLives
	Report     *whatif.Report
	Subjects   []whatif.Subject
}

// Lives are how long data of a type of regions is needed.
type Lives struct {
	Type     string
	Survival *memtrace.Survival
}

// Heat is what was touched, by place and time.
type Heat struct {
	BinS   float64 // how long a column of cells is, in seconds
	Bins   int
	Panels []HeatPanel
}

// HeatPanel is the places of a type of regions.
type HeatPanel struct {
	Type  string
	Bytes float64 // of all places: the height of the panel
	Rows  int
	// Touched is the bytes that were touched in each cell, row by row from the lowest place on, Bins to a row. A
	// byte counts each time.
	Touched []float64
}

// Working is how many different bytes were touched in windows of time, in order.
type Working struct {
	WindowS     float64
	Granularity int64 // bytes that count as one
	Types       []WorkingType
}

// WorkingType is the working set of a type of regions.
type WorkingType struct {
	Type  string
	Bytes []float64 // by window
}

// PhaseBytes is what was read and written in a phase, in regions of a type.
type PhaseBytes struct {
	Phase, Type   string
	Read, Written float64
}

// KVLives are the lives of the blocks of a cache.
type KVLives struct {
	Name    string
	Blocks  int64
	Cells   int64 // of a block
	Seconds float64
	Lives   []KVLife
	// More is how many lives there are beside these.
	More int64
}

// KVLife is one of them.
type KVLife struct {
	Block    int64
	From, To float64 // seconds since the run began
	LastRead float64 // 0: it was never read
	Reason   string  // why it was evicted; "": it was not
}
