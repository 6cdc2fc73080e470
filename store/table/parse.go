package table

import (
	"errors"
	"fmt"
)

// errFooter occurs where a footer contradicts itself.
var errFooter = errors.New("its footer is damaged")

// parseFooter reads a footer without its length.
func parseFooter(b []byte) (*fileMeta, error) {
	r := &thriftReader{b: b}
	m := &fileMeta{rows: -1}
	encrypted := false
	r.fields(func(id int16, kind byte) bool {
		switch id {
		case 2:
			r.list(kind, func(kind byte) { m.schema = append(m.schema, parseElement(r, kind)) })
		case 3:
			m.rows = r.i64(kind)
		case 4:
			r.list(kind, func(kind byte) { m.groups = append(m.groups, parseGroup(r, kind)) })
		case 5:
			r.list(kind, func(kind byte) { m.about = append(m.about, parsePair(r, kind)) })
		default:
			encrypted = encrypted || id == 8
			return false
		}
		return true
	})
	switch {
	case r.err != nil:
		return nil, fmt.Errorf("%w: %w", errFooter, r.err)
	case encrypted:
		return nil, errors.New("it is encrypted: write it again without encryption")
	case m.rows < 0 || len(m.schema) == 0:
		return nil, fmt.Errorf("%w: it has no schema or no count of rows", errFooter)
	}
	return m, nil
}

// inStruct reads a struct that is an element of a list.
func inStruct(r *thriftReader, kind byte, field func(id int16, kind byte) bool) {
	if kind != thriftStruct {
		r.fail()
		return
	}
	r.fields(field)
}

func parsePair(r *thriftReader, kind byte) (pair [2]string) {
	inStruct(r, kind, func(id int16, kind byte) bool {
		if id != 1 && id != 2 {
			return false
		}
		pair[id-1] = string(r.bytes(kind))
		return true
	})
	return pair
}

func parseElement(r *thriftReader, kind byte) element {
	e := element{physical: physicalNone, repetition: required, converted: convertedNone}
	inStruct(r, kind, func(id int16, kind byte) bool {
		switch id {
		case 1:
			e.physical = r.i32(kind)
		case 3:
			e.repetition = r.i32(kind)
		case 4:
			e.name = string(r.bytes(kind))
		case 5:
			e.children = r.i32(kind)
		case 6:
			e.converted = r.i32(kind)
			e.unsigned = e.unsigned || e.converted >= 11 && e.converted <= convertedUint64
		case 10:
			inStruct(r, kind, func(id int16, kind byte) bool {
				if id != 10 {
					return false
				}
				inStruct(r, kind, func(id int16, kind byte) bool {
					if id != 2 {
						return false
					}
					e.unsigned = !r.truth(kind)
					return true
				})
				return true
			})
		default:
			return false
		}
		return true
	})
	return e
}

func parseGroup(r *thriftReader, kind byte) groupMeta {
	g := groupMeta{rows: -1}
	inStruct(r, kind, func(id int16, kind byte) bool {
		switch id {
		case 1:
			r.list(kind, func(kind byte) { g.chunks = append(g.chunks, parseChunk(r, kind)) })
		case 3:
			g.rows = r.i64(kind)
		default:
			return false
		}
		return true
	})
	if g.rows < 0 {
		r.fail()
	}
	return g
}

func parseChunk(r *thriftReader, kind byte) chunkMeta {
	c := chunkMeta{physical: physicalNone, stats: statistics{nulls: -1}}
	inStruct(r, kind, func(id int16, kind byte) bool {
		switch id {
		case 1: // its bytes are in another file
			r.fail()
		case 3:
			inStruct(r, kind, func(id int16, kind byte) bool { return c.parse(r, id, kind) })
		default:
			return false
		}
		return true
	})
	return c
}

func (c *chunkMeta) parse(r *thriftReader, id int16, kind byte) bool {
	switch id {
	case 1:
		c.physical = r.i32(kind)
	case 4:
		c.codec = r.i32(kind)
	case 5:
		c.values = r.i64(kind)
	case 6:
		c.raw = r.i64(kind)
	case 7:
		c.packed = r.i64(kind)
	case 9:
		c.data = r.i64(kind)
	case 11:
		c.dict = r.i64(kind)
	case 12:
		inStruct(r, kind, func(id int16, kind byte) bool {
			switch id {
			case 3:
				c.stats.nulls = r.i64(kind)
			case 5:
				c.stats.max = r.bytes(kind)
			case 6:
				c.stats.min = r.bytes(kind)
			default:
				return false
			}
			return true
		})
	default:
		return false
	}
	return true
}

// parsePage reads the head of a page, and says what is after it.
func parsePage(b []byte) (h pageHead, rest []byte, err error) {
	r := &thriftReader{b: b}
	h = pageHead{kind: -1, raw: -1, packed: -1, values: -1, encoding: -1, levels: encodeRuns}
	r.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			h.kind = r.i32(kind)
		case 2:
			h.raw = r.i32(kind)
		case 3:
			h.packed = r.i32(kind)
		case 4:
			h.crc, h.hasCRC = uint32(r.i32(kind)), true
		case 5, 7:
			inStruct(r, kind, func(id int16, kind byte) bool { return h.parse(r, id, kind) })
		case 8:
			inStruct(r, kind, func(id int16, kind byte) bool { return h.parseV2(r, id, kind) })
		default:
			return false
		}
		return true
	})
	if r.err == nil && (h.raw < 0 || h.packed < 0) {
		r.fail()
	}
	return h, r.b, r.err
}

// parse reads what stands in the heads of dictionaries and of the older form of data pages alike.
func (h *pageHead) parse(r *thriftReader, id int16, kind byte) bool {
	switch id {
	case 1:
		h.values = r.i32(kind)
	case 2:
		h.encoding = r.i32(kind)
	case 3:
		if kind == thriftTrue || kind == thriftFalse {
			return true // whether a dictionary is sorted
		}
		h.levels = r.i32(kind)
	default:
		return false
	}
	return true
}

func (h *pageHead) parseV2(r *thriftReader, id int16, kind byte) bool {
	switch id {
	case 1:
		h.values = r.i32(kind)
	case 4:
		h.encoding = r.i32(kind)
	case 5:
		h.defBytes = r.i32(kind)
	case 6:
		h.repBytes = r.i32(kind)
	case 7:
		h.plain = !r.truth(kind)
	default:
		return false
	}
	return true
}
