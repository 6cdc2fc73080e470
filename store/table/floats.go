package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errNoFloats occurs where a list has no values.
var errNoFloats = errors.New("a list is empty, null or has nulls, or is encoded in another way than this package does")

// Floats reads the floats of a column of lists in a row group, list by list. Lists that are empty, and pages with a
// dictionary, are errors.
func (t *Reader) Floats(group int, name string) (all []float32, err error) {
	l, ok := t.lists[name]
	if !ok || l.physical != physicalFloat {
		return nil, fmt.Errorf("%w: it has no column %s of lists of floats: is it another table?", ErrTable, name)
	}
	chunk := &t.meta.groups[group].chunks[l.at]
	if chunk.physical != l.physical {
		return nil, columnError(name, errFooter)
	}
	var p pages
	if err := p.begin(t.from, t.size, chunk); err != nil {
		return nil, columnError(name, err)
	}
	for {
		h, body, err := p.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil && (h.kind == pageData || h.kind == pageDataV2) {
			all, err = appendFloats(all, &h, body)
		}
		if err != nil {
			return nil, columnError(name, err)
		}
	}
}

// appendFloats appends the floats of a page, which has one for each of its levels.
func appendFloats(to []float32, h *pageHead, body []byte) ([]float32, error) {
	if h.kind == pageDataV2 {
		body = body[h.repBytes+h.defBytes:]
	} else {
		for range 2 { // levels of repetition and definition, after their lengths
			if len(body) < 4 || uint64(binary.LittleEndian.Uint32(body)) > uint64(len(body)-4) {
				return nil, errLevels
			}
			body = body[4+binary.LittleEndian.Uint32(body):]
		}
	}
	n := len(body) / 4
	if n != h.values || len(body)%4 != 0 || h.encoding != encodePlain && h.encoding != encodeSplit {
		return nil, errNoFloats
	}
	for i := range n {
		bits := uint32(0)
		if h.encoding == encodePlain {
			bits = binary.LittleEndian.Uint32(body[4*i:])
		} else {
			bits = uint32(body[i]) | uint32(body[n+i])<<8 | uint32(body[2*n+i])<<16 | uint32(body[3*n+i])<<24
		}
		to = append(to, math.Float32frombits(bits))
	}
	return to, nil
}
