package intervene

import (
	"fmt"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// AllHeads, as a head, means the whole row.
const AllHeads = -1

// Site is a row of a point: of a layer, at a token of the prompt, and of one head or of all.
type Site struct {
	Point ggmlhooks.Point `json:"point"`
	Layer int             `json:"layer"` // -1 for a point of the whole model
	Token int             `json:"token"`
	Head  int             `json:"head"` // AllHeads: -1
}

// String writes a site as mlp_out.3@5, or z.3.h2@5 for a head.
func (s Site) String() string {
	name := s.ref().String()
	if s.Head != AllHeads {
		name += fmt.Sprintf(".h%d", s.Head)
	}
	return fmt.Sprintf("%s@%d", name, s.Token)
}

// ref is the point of the site.
func (s Site) ref() ggmlhooks.PointRef { return ggmlhooks.PointRef{Point: s.Point, Layer: s.Layer} }

// row is the site with all heads.
func (s Site) row() Site {
	s.Head = AllHeads
	return s
}

// Edit changes a site when it was computed and before anything reads it.
type Edit struct {
	Site
	Kind llama.WatchKind
	// Values are what WatchSet writes, or the direction of length 1 that WatchProject removes; as many as the site has.
	Values []float32
}

// Trial is a run of the prompt with some edits.
type Trial []Edit

// start is the first token that the trial changes; last for a trial without edits.
func (t Trial) start(last int) int {
	for _, e := range t {
		last = min(last, e.Token)
	}
	return last
}
