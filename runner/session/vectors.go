//go:build linux

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

// vectors are what is added to the residual stream, one after the other. It is for the goroutine that reads the tap.
type vectors struct {
	run *run
	now map[int]collect.Steered // by sequence
}

// vector is a control vector as it is added: scaled.
type vector struct {
	rundir.Vector
	rows map[int][]float32
}

// openVector reads a control vector and scales it as llama.cpp does.
func openVector(s config.Steer) (*vector, error) {
	v, err := gguf.OpenControlVector(s.File)
	if err != nil {
		return nil, err
	}
	if s.File, err = filepath.Abs(s.File); err != nil { // metadata names it for readers in other folders
		return nil, err
	}
	file, err := os.Open(s.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, fmt.Errorf("%s: %w", s.File, err)
	}
	var has ggmlhooks.LayerSet
	for layer, row := range v.Directions {
		if layer >= ggmlhooks.MaxLayers {
			return nil, fmt.Errorf("%s: layer %d: models have at most %d layers", s.File, layer, ggmlhooks.MaxLayers)
		}
		if has.Add(layer); !s.Layers.Empty() && !s.Layers.Has(layer) {
			delete(v.Directions, layer)
			continue
		}
		for i := range row {
			row[i] = float32(s.Scale) * row[i]
		}
	}
	if s.Layers.Empty() {
		s.Layers = has
	}
	if !within(s.Layers, has) {
		return nil, fmt.Errorf("%s has directions for layers %v, and layers %v are asked for: leave the others out",
			s.File, has, s.Layers)
	}
	return &vector{rows: v.Directions, Vector: rundir.Vector{File: s.File, SHA256: hex.EncodeToString(hash.Sum(nil)),
		Scale: s.Scale, Layers: s.Layers.String()}}, nil
}

// within reports whether all layers of a set are in another.
func within(set, other ggmlhooks.LayerSet) bool {
	in := other.Words()
	for i, word := range set.Words() {
		if word&^in[i] != 0 {
			return false
		}
	}
	return true
}

var errNothingComputed = errors.New("the model has computed nothing yet, or its llama.cpp has no control vectors: " +
	"repeat the command after the first answer")

// check refuses a vector that does not fit the model, as far as its first graph has shown it.
func (v *vector) check(region *collect.Region) error {
	model := region.Steering()
	switch {
	case model.Embd == 0:
		return errNothingComputed
	case model.Adds.Empty():
		return errors.New("this architecture adds no control vectors in llama.cpp: steer a model of another one")
	}
	for layer, row := range v.rows {
		switch {
		case len(row) != model.Embd:
			return fmt.Errorf("%s has directions of %d channels, and the model's residual stream has %d: take a "+
				"vector of this model", v.File, len(row), model.Embd)
		case !model.Adds.Has(layer):
			return fmt.Errorf("%s has a direction for layer %d, and the model adds vectors after layers %s: name "+
				"those of them that are meant, as in %s:1:%s", v.File, layer, model.Adds.String(), v.File,
				model.Adds.String())
		}
	}
	return nil
}

// begin hands the vector over that is added from the start, and returns it; nil: there is none.
func (s *vectors) begin() (v *vector, err error) {
	if !s.run.o.Tap.Records(config.Steering) {
		return nil, nil
	}
	s.run.steered = []rundir.Steering{{}}
	if s.run.o.Tap.Steer.File == "" {
		return nil, nil
	}
	if v, err = openVector(s.run.o.Tap.Steer); err == nil {
		_, err = s.setVector(nil, v)
	}
	if err != nil {
		return nil, fmt.Errorf("--tap-steer: %w", err)
	}
	return v, nil
}

// setVector gives a sequence of the model, or (nil) all that have none of their own, another vector, or (nil) none.
func (s *vectors) setVector(sequence *int, v *vector) (number uint32, err error) {
	next, now, at := rundir.Steering{Sequence: sequence}, maps.Clone(s.now), collect.AllSequences
	if sequence != nil {
		at = *sequence
	}
	if delete(now, at); v != nil {
		if now == nil {
			now = map[int]collect.Steered{}
		}
		next.Vector, now[at] = &v.Vector, v.rows
	}
	if next.Number, err = s.run.region.Steer(now); err == nil {
		s.run.steered, s.now = append(s.run.steered, next), now
	}
	return next.Number, err
}

// exchange does what a steer command asks for, and returns the number of what is added then.
func (s *vectors) exchange(r control.Request) (number uint32, err error) {
	if s.run.steered == nil {
		return 0, errors.New("this run is not armed for steering: start it with --tap-steer armed, or with a vector")
	}
	if err := s.checkSequence(r.Sequence); err != nil {
		return 0, err
	}
	var v *vector
	if r.Vector != control.VectorOff {
		what, err := config.ParseSteer(r.Vector)
		if err != nil {
			return 0, err
		}
		if v, err = openVector(what); err != nil {
			return 0, err
		}
		if err := v.check(s.run.region); err != nil {
			return 0, err
		}
	}
	return s.setVector(r.Sequence, v)
}

// checkSequence refuses a sequence that the model does not have; nil: all are meant.
func (s *vectors) checkSequence(sequence *int) error {
	if sequence == nil {
		return nil
	}
	switch model := s.run.region.Steering(); {
	case model.Embd == 0:
		return errNothingComputed
	case model.Sequences == 0:
		return errors.New("this llama.cpp cannot add vectors to single rows ('llamatap doctor' names what it lacks): " +
			"leave the sequence out, which steers the whole run")
	case *sequence >= model.Sequences:
		return fmt.Errorf("sequence %d: the model computes sequences 0 to %d; in llama-server, they are its slots",
			*sequence, model.Sequences-1)
	}
	return nil
}

// exec notes the first execution of each, and returns what it is the first of.
func (s *vectors) exec(e *ggmlhooks.Exec) (first []rundir.Steering) {
	if int(e.Steer) >= len(s.run.steered) || s.run.steered[e.Steer].FirstExec != nil {
		return nil
	}
	for _, now := range s.inForce(int(e.Steer)) {
		if now.FirstExec != nil {
			continue
		}
		exec := e.Number
		now.FirstExec = &exec
		if e.TokenFirst >= 0 {
			token := e.TokenFirst
			now.FirstToken = &token
		}
		if now.Number != 0 {
			now.ExchangeNS = s.run.region.Steering().Last.Nanoseconds()
			first = append(first, *now)
		}
	}
	return first
}

// inForce are the newest of all sequences, and of each with one of its own, up to a number.
func (s *vectors) inForce(number int) (steerings []*rundir.Steering) {
	seen := map[int]bool{}
	for i := number; i >= 0; i-- {
		now, at := &s.run.steered[i], collect.AllSequences
		if now.Sequence != nil {
			at = *now.Sequence
		}
		if !seen[at] {
			steerings = append(steerings, now)
		}
		seen[at] = true
	}
	slices.Reverse(steerings)
	return steerings
}

// named is what has a number; nil for 0.
func (s *vectors) named(number uint32) *rundir.Steering {
	if number == 0 {
		return nil
	}
	now := s.run.steered[number]
	return &now
}

// newest is what was asked for last, of all sequences (nil: the run is not armed) and of each that has a vector of its
// own.
func (s *vectors) newest() (all *rundir.Steering, own []rundir.Steering) {
	for _, now := range s.inForce(len(s.run.steered) - 1) {
		switch {
		case now.Sequence == nil:
			all = new(*now)
		case now.Vector != nil:
			own = append(own, *now)
		}
	}
	return all, own
}
