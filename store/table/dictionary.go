package table

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// dictionary is the values of a row group by number: integers, or texts.
type dictionary struct {
	text  bool
	ints  integers
	texts texts
}

func (d *dictionary) reset() {
	if d.ints.slots != nil {
		d.ints.reset()
	}
	d.texts.reset()
}

// code is the number of an integer, or of a text by its code in the batch.
func (d *dictionary) code(v int64) uint32 {
	if d.text {
		return d.texts.code(v)
	}
	return d.ints.code(v)
}

func (d *dictionary) len() int { return len(d.ints.values) + len(d.texts.list) }

// size is about how many bytes it takes in memory.
func (d *dictionary) size() int { return 12*len(d.ints.values) + d.texts.bytes + 64*len(d.texts.list) }

// page is the dictionary's page, and its size before compression.
func (d *dictionary) page(narrow bool) ([]byte, int64) {
	p := presses.Get().(*press)
	defer presses.Put(p)
	p.raw = appendInts(p.raw[:0], d.ints.values, narrow)
	for _, v := range d.texts.list {
		p.raw = binary.LittleEndian.AppendUint32(p.raw, uint32(len(v)))
		p.raw = append(p.raw, v...)
	}
	return p.page(nil, pageHead{kind: pageDict, values: d.len(), encoding: encodePlain})
}

// integers is a dictionary of integers, in the order in which they came.
type integers struct {
	slots  []uint32 // number in values + 1; a power of two, at least twice as many as values
	shift  uint
	values []int64
}

func (d *integers) reset() {
	clear(d.slots)
	d.values = d.values[:0]
}

// code is the number of a value, which is new if it is len(d.values)-1 for the first time.
func (d *integers) code(v int64) uint32 {
	if 2*len(d.values) >= len(d.slots) {
		d.grow()
	}
	mask := uint64(len(d.slots) - 1)
	at := uint64(v) * 0x9E3779B97F4A7C15 >> d.shift
	for {
		switch n := d.slots[at&mask]; {
		case n == 0:
			d.values = append(d.values, v)
			d.slots[at&mask] = uint32(len(d.values))
			return uint32(len(d.values) - 1)
		case d.values[n-1] == v:
			return n - 1
		}
		at++
	}
}

func (d *integers) grow() {
	values := d.values
	d.slots = make([]uint32, max(64, 4*len(d.slots)))
	d.shift = 64
	for n := len(d.slots); n > 1; n >>= 1 {
		d.shift--
	}
	d.values = d.values[:0]
	for _, v := range values {
		d.code(v)
	}
}

// sort brings the values into order, and returns the number that each of them has now, by the one that it had.
// There may be no more codes until reset.
func (d *integers) sort(unsigned bool) []uint32 {
	flip := int64(0)
	if unsigned {
		flip = math.MinInt64
	}
	order := make([]uint32, len(d.values))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(d.values[a]^flip, d.values[b]^flip) })
	sorted, numbers := make([]int64, len(order)), make([]uint32, len(order))
	for i, old := range order {
		sorted[i], numbers[old] = d.values[old], uint32(i)
	}
	d.values = sorted
	return numbers
}

// texts is a dictionary of texts, in the order in which they came.
type texts struct {
	codes map[string]uint32
	list  []string
	bytes int
	// What codes of a batch stand for; -1: not looked up yet. It is good for one batch until that forgets texts.
	of    *words
	epoch int
	known []int32
}

func (d *texts) reset() {
	clear(d.codes)
	clear(d.list)
	d.list, d.bytes, d.of = d.list[:0], 0, nil
}

// from says whose codes are asked for.
func (d *texts) from(w *words) {
	if d.of != w || d.epoch != w.epoch {
		d.of, d.epoch, d.known = w, w.epoch, d.known[:0]
	}
	for len(d.known) < len(w.list) {
		d.known = append(d.known, -1)
	}
}

// code is the number here of a text that has a code there.
func (d *texts) code(theirs int64) uint32 {
	if code := d.known[theirs]; code >= 0 {
		return uint32(code)
	}
	v := d.of.list[theirs]
	code, ok := d.codes[v]
	if !ok {
		if d.codes == nil {
			d.codes = map[string]uint32{}
		}
		code = uint32(len(d.list))
		d.codes[v] = code
		d.list = append(d.list, v)
		d.bytes += len(v) + 4
	}
	d.known[theirs] = int32(code)
	return code
}
