package mrm

import (
	"errors"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
)

// Experiment is an experiment that is run: mrm-trace's class of that name.
type Experiment struct {
	Config *Config
	// Program is the llamatap that runs the model; "" is the program that this process runs.
	Program string
	// Version is llamatap's, for the metadata.
	Version string
	// Retry runs cells again whose only run is contaminated.
	Retry bool
	// Enough, when it is closed, ends the experiment behind the cell that is being run; nil: nothing does. A
	// context that ends it ends that cell too, of which nothing is kept then.
	Enough <-chan struct{}
	// Report is called with what happens, by one goroutine; nil: nothing is reported.
	Report func(Event)
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds.
const (
	CellBegun   EventKind = iota
	CellStep              // Text is what is done now
	CellSealed            // Dir and Class are known
	CellDone              // it was sealed before
	CellRemoved           // what an earlier process left of it was removed
	CellBusy              // another process runs it
	CellFailed            // Err says why
)

// Event is something that happened to a cell.
type Event struct {
	Kind   EventKind
	Cell   *Cell
	Number int // of this call's cells, from 1
	Of     int
	Text   string
	Step   int // of Steps in this cell, from 1; 0 before the first
	Steps  int
	Dir    string
	Class  memory.Class
	Why    string // what keeps the run from being clean
	Took   time.Duration
	Left   time.Duration // about how long the cells behind this one take; 0: not known
	Err    error
}

// Outcome is what a call left.
type Outcome struct {
	Sealed  []string // directories, in the order of cells
	Classes map[memory.Class]int
	Done    int // cells that were sealed before
	Busy    int // cells that another process runs
	Failed  int
	Left    int // cells that were not begun
}

// The errors of running.
var (
	// ErrFailed occurs when cells failed and the others were run.
	ErrFailed = errors.New("cells failed")
	// ErrDamaged occurs when a sealed run of a cell is not what was sealed.
	ErrDamaged = errors.New("a sealed run is damaged")
	// ErrCell occurs when there is no cell of a number.
	ErrCell = errors.New("no such cell")
)

func (e *Experiment) report(event Event) {
	if e.Report != nil {
		e.Report(event)
	}
}

// enough reports whether no further cell is to be begun.
func (e *Experiment) enough() bool {
	select {
	case <-e.Enough:
		return true
	default:
		return false
	}
}
