package table

import (
	"encoding/binary"
	"errors"
)

var errTexts = errors.New("texts of a page are longer than the page")

// maxTexts is how many texts a page may have whose lengths are packed.
const maxTexts = 1 << 22

// plainTexts calls each for texts that follow their lengths.
func plainTexts(b []byte, each func([]byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return errTexts
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		if err := each(b[4:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// deltaTexts calls each for texts all of whose lengths stand before them, and where prefixes are said, before these
// how much of the one before each begins with.
func deltaTexts(b []byte, prefixes bool, each func([]byte) error) error {
	var shared []int64
	var err error
	if prefixes {
		if shared, b, err = deltaAll(b); err != nil {
			return err
		}
	}
	lengths, b, err := deltaAll(b)
	if err != nil {
		return err
	}
	if prefixes && len(shared) != len(lengths) {
		return errTexts
	}
	var whole []byte
	for i, n := range lengths {
		if n < 0 || n > int64(len(b)) {
			return errTexts
		}
		text := b[:n]
		b = b[n:]
		if prefixes {
			if shared[i] < 0 || shared[i] > int64(len(whole)) || shared[i]+n > maxPage {
				return errTexts
			}
			whole = append(whole[:shared[i]], text...)
			text = whole
		}
		if err := each(text); err != nil {
			return err
		}
	}
	return nil
}

// deltaAll reads all integers of a DELTA_BINARY_PACKED, and says what is after them.
func deltaAll(b []byte) ([]int64, []byte, error) {
	r, err := newDeltaReader(b)
	if err != nil {
		return nil, nil, err
	}
	if r.left > maxTexts {
		return nil, nil, errTexts
	}
	var all []int64
	for r.left > 0 {
		at := len(all)
		all = append(all, make([]int64, min(r.left, 1<<12))...)
		if !r.read(all[at:]) {
			return nil, nil, errDelta
		}
	}
	return all, r.b, nil
}
