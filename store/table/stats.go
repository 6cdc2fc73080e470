package table

import "math"

// columnStats are the statistics of a column in a row group, with which a reader can skip it.
type columnStats struct {
	kind  Kind
	nulls int64
	// of values that are in no dictionary
	bounds    bounds
	low, high string
	some      bool // of texts
}

func (s *columnStats) reset() { *s = columnStats{kind: s.kind} }

func (s *columnStats) ints(v []int64) { s.bounds.add(v, s.kind.unsigned()) }

func (s *columnStats) text(v string) {
	if !s.some {
		s.low, s.high, s.some = v, v, true
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// maxBound is the longest text in bytes that statistics hold.
const maxBound = 256

// statistics are those of the file, values of the dictionary included. Lists, booleans and floats have no bounds.
func (s *columnStats) statistics(d *dictionary) statistics {
	file := statistics{nulls: s.nulls}
	switch s.kind {
	case Int32List, Float32List:
		return statistics{nulls: -1}
	case Bool, Float64:
	case Text:
		for _, v := range d.texts.list {
			s.text(v)
		}
		if s.some && len(s.low) <= maxBound && len(s.high) <= maxBound {
			file.min, file.max = []byte(s.low), []byte(s.high)
		}
	default:
		s.ints(d.ints.values)
		if s.bounds.some {
			file.min = appendInts(nil, []int64{s.bounds.low}, s.kind.narrow())
			file.max = appendInts(nil, []int64{s.bounds.high}, s.kind.narrow())
		}
	}
	return file
}

// bounds are the least and the greatest of integers.
type bounds struct {
	low, high int64
	some      bool
}

// add takes values in.
func (b *bounds) add(v []int64, unsigned bool) {
	if len(v) == 0 {
		return
	}
	flip := int64(0)
	if unsigned { // in order as signed ones, so
		flip = math.MinInt64
	}
	low, high := v[0]^flip, v[0]^flip
	if b.some {
		low, high = b.low^flip, b.high^flip
	}
	for _, x := range v {
		low, high = min(low, x^flip), max(high, x^flip)
	}
	b.low, b.high, b.some = low^flip, high^flip, true
}
