//go:build linux

package collect

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// ErrWish occurs when a selection does not fit into the shared memory.
var ErrWish = errors.New("the selection is too large")

// Wish is what the tap captures.
type Wish struct {
	Selection ggmlhooks.Selection
	// MapsAlone leaves out everything but what Selection.Attention asks for.
	MapsAlone bool
	// Off captures nothing; graphs and tokens are recorded all the same.
	Off bool
	// Machine is what is reported besides tensors.
	Machine Machine
	// WindowOf is the selection with whose first graph the window of tokens began; 0: this one.
	WindowOf uint32
}

// Machine is what the tap reports of what the model's machine does.
type Machine struct {
	Looking ggmlhooks.Looking // which nodes are timed
	// LookEvery is N where one in N executions of about as many tokens is timed; 0: as many as cost the model at most
	// 3 % of its computing.
	LookEvery uint32
	Cells     bool // which cells of a memory are written and may be read
	Routing   bool // experts that were chosen, and their weights
	Samples   bool // what samplers chose from
	Experts   bool // experts that were chosen, without their weights
	Requests  bool // what a server does for its requests, from the start on
	Moves     bool // what is moved to devices and back, from the start on
	Copies    bool // what is copied to devices while the program is recorded
}

// record is a Machine as the tap reads it.
func (m Machine) record() (bits uint32) {
	for i, on := range [...]bool{m.Cells, m.Routing, m.Samples, m.Experts, m.Requests, m.Moves, m.Copies} {
		if on {
			bits |= recordCells << i
		}
	}
	return bits
}

// wishes counts the selections of a Region. Number 0 is the one that the run was started with.
type wishes struct {
	mu     sync.Mutex
	last   uint32
	newest ggmlhooks.Selection
}

// Select changes what the tap captures from the model's next graph on, and returns the number of the new selection,
// by which graphs that are marked by it are distinguished.
func (r *Region) Select(w Wish) (number uint32, err error) {
	var next shmSelection
	if err := fillSelection(&next, w); err != nil {
		return 0, err
	}
	r.wishes.mu.Lock()
	defer r.wishes.mu.Unlock()
	r.wishes.last++
	number = r.wishes.last
	next.WindowOf = cmp.Or(w.WindowOf, number)
	words := (*[selectionWords]uint64)(unsafe.Pointer(&next))
	place := &r.header.Selections[number%2]
	for i, word := range words {
		atomic.StoreUint64(&place[i], word)
	}
	r.wishes.newest = w.Selection
	atomic.StoreUint32(&r.header.Selection, number)
	return number, nil
}

// answer names the nodes of a graph that the points of the newest selection mean, for the tap, which asked for them.
func (r *Region) answer(g *ggmlhooks.Graph) {
	r.wishes.mu.Lock()
	defer r.wishes.mu.Unlock()
	var words [pointWords]uint64
	for _, site := range g.Points() {
		if site.Node >= 0 && site.Node < 64*pointWords && r.wishes.newest.WantsPoint(site.Point, site.Layer) {
			words[site.Node/64] |= 1 << (site.Node % 64)
		}
	}
	for i, word := range words {
		atomic.StoreUint64(&r.header.Points[i], word)
	}
	atomic.StoreUint64(&r.header.PointsOf, g.ID)
}

// fillSelection writes a wish as the tap reads it.
func fillSelection(c *shmSelection, w Wish) error {
	s := w.Selection
	if !w.Off {
		c.Record = recordActivations
	}
	if w.MapsAlone {
		c.Record |= recordMapsAlone
	}
	c.Record |= w.Machine.record()
	c.Looking, c.LookEvery = uint32(w.Machine.Looking), w.Machine.LookEvery
	c.Granularity = uint32(s.Granularity)
	c.Attention = uint32(s.Attention)
	c.Layers = s.Layers.Words()
	if !s.Layers.Empty() {
		c.LayersSet = 1
	}
	c.TokenKind = uint32(s.Tokens.Kind)
	c.TokenFirst, c.TokenEnd, c.TokenStep = s.Tokens.First, s.Tokens.End, s.Tokens.Step
	c.Window = s.Window
	if len(s.Tensors) > maxGlobs {
		return fmt.Errorf("%w: %d tensor globs, and at most %d can be given; join some with * or [..]",
			ErrWish, len(s.Tensors), maxGlobs)
	}
	for i, glob := range s.Tensors {
		if len(glob) >= globSize {
			return fmt.Errorf("%w: tensor glob %.20q… has %d bytes, and at most %d can be given",
				ErrWish, glob, len(glob), globSize-1)
		}
		copy(c.Globs[i][:], glob)
	}
	c.NGlobs = uint32(len(s.Tensors))
	if len(s.Points) > 0 {
		c.Points = 1
	}
	return nil
}
