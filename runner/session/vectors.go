//go:build linux

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

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

// check refuses a vector that does not fit the model, as far as its first graph has shown it.
func (v *vector) check(region *collect.Region) error {
	model := region.Steering()
	switch {
	case model.Embd == 0:
		return errors.New("the model has computed nothing yet, or its llama.cpp has no control vectors: repeat the " +
			"command after the first answer")
	case model.Adds.Empty():
		return errors.New("this architecture adds no control vectors in llama.cpp: steer a model of another one")
	}
	for layer, row := range v.rows {
		switch {
		case len(row) != model.Embd:
			return fmt.Errorf("%s has directions of %d channels, and the model's residual stream has %d: take a vector "+
				"of this model", v.File, len(row), model.Embd)
		case !model.Adds.Has(layer):
			return fmt.Errorf("%s has a direction for layer %d, and the model adds vectors after layers %s: name those "+
				"of them that are meant, as in %s:1:%s", v.File, layer, model.Adds.String(), v.File, model.Adds.String())
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
		_, err = s.hand(v)
	}
	if err != nil {
		return nil, fmt.Errorf("--tap-steer: %w", err)
	}
	return v, nil
}

// hand gives the model other vectors.
func (s *vectors) hand(v *vector) (number uint32, err error) {
	next, rows := rundir.Steering{}, map[int][]float32(nil)
	if v != nil {
		next.Vector, rows = &v.Vector, v.rows
	}
	if next.Number, err = s.run.region.Steer(rows); err == nil {
		s.run.steered = append(s.run.steered, next)
	}
	return next.Number, err
}

// exchange does what a steer command asks for, and returns the number of what is added then.
func (s *vectors) exchange(text string) (number uint32, err error) {
	if s.run.steered == nil {
		return 0, errors.New("this run is not armed for steering: start it with --tap-steer armed, or with a vector")
	}
	var v *vector
	if text != control.VectorOff {
		what, err := config.ParseSteer(text)
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
	return s.hand(v)
}

// exec notes the first execution of each, and returns what it is the first of.
func (s *vectors) exec(e *ggmlhooks.Exec) *rundir.Steering {
	if int(e.Steer) >= len(s.run.steered) || s.run.steered[e.Steer].FirstExec != nil {
		return nil
	}
	now := &s.run.steered[e.Steer]
	exec := e.Number
	now.FirstExec = &exec
	if e.TokenFirst >= 0 {
		token := e.TokenFirst
		now.FirstToken = &token
	}
	if e.Steer == 0 {
		return nil
	}
	now.ExchangeNS = s.run.region.Steering().Last.Nanoseconds()
	return s.named(e.Steer)
}

// named is what has a number; nil for 0.
func (s *vectors) named(number uint32) *rundir.Steering {
	if number == 0 {
		return nil
	}
	now := s.run.steered[number]
	return &now
}

// newest is what was asked for last; nil: the run is not armed.
func (s *vectors) newest() *rundir.Steering {
	if len(s.run.steered) == 0 {
		return nil
	}
	now := s.run.steered[len(s.run.steered)-1]
	return &now
}
