//go:build llama && linux

package track

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
)

// random does one thing. It returns what, or "" if there was nothing to do.
func (w *walker) random() (what string, err error) {
	seq := w.rand.IntN(w.Sequences)
	switch n := w.rand.IntN(20); {
	case n < 9:
		return w.randomDecode(seq)
	case n < 11:
		return w.randomRemove(seq), nil
	case n < 13:
		return w.randomCopy(seq), nil
	case n == 13:
		w.m.Keep(llama.Seq(seq))
		return fmt.Sprintf("keep %d", seq), nil
	case n < 16:
		return w.randomShift(seq), nil
	case n == 16:
		if w.rand.IntN(3) > 0 {
			return "", nil
		}
		w.m.Clear(w.rand.IntN(2) == 0)
		clear(w.loaded)
		return "clear", nil
	case n == 17:
		return w.save(seq)
	default:
		return w.load(seq)
	}
}

func (w *walker) randomDecode(seq int) (string, error) {
	seqs := []int{seq}
	for other := range w.Sequences {
		if other != seq && w.rand.IntN(3) == 0 {
			seqs = append(seqs, other)
		}
	}
	slices.Sort(seqs)
	n := 1
	if w.rand.IntN(3) == 0 {
		n = 1 + w.rand.IntN(12)
	}
	limit := w.Size/w.Sequences - 16
	for _, seq := range seqs {
		if int(w.next[seq])+n > limit {
			w.m.Remove(llama.Seq(seq), -1, -1)
			w.loaded[seq] = false
			return fmt.Sprintf("make room in %d", seq), nil
		}
	}
	return fmt.Sprintf("decode %d of %v", n, seqs), w.decode(seqs, n, w.rand.IntN(2) == 0)
}

func (w *walker) randomRemove(seq int) string {
	first, end := llama.Pos(-1), llama.Pos(-1)
	switch w.rand.IntN(4) {
	case 0:
	case 1, 2: // the end, as drafts are rejected
		first = llama.Pos(max(0, w.next[seq]-int32(w.rand.IntN(5))))
	case 3: // all of it, by positions
		first, end = 0, llama.Pos(w.next[seq])
	}
	if !w.m.Remove(llama.Seq(seq), first, end) {
		return fmt.Sprintf("could not remove %d to %d of %d", first, end, seq)
	}
	if first <= 0 && end < 0 {
		w.loaded[seq] = false
	}
	return fmt.Sprintf("remove %d to %d of %d", first, end, seq)
}

func (w *walker) randomCopy(from int) string {
	to := w.rand.IntN(w.Sequences)
	if to == from || w.next[from] == 0 {
		return ""
	}
	// llama.cpp counts a cell twice that the sequence has already, so programs remove what is there, as this one does.
	if !w.m.Remove(llama.Seq(to), -1, -1) {
		return ""
	}
	w.m.Copy(llama.Seq(from), llama.Seq(to), -1, -1)
	w.loaded[to] = w.loaded[from]
	return fmt.Sprintf("copy %d to %d", from, to)
}

func (w *walker) randomShift(seq int) string {
	if !w.m.CanShift() || w.next[seq] < 4 {
		return ""
	}
	for other := range w.Sequences { // a shared cell has one position
		if w.Unified && other != seq && w.next[other] > 0 && w.rand.IntN(4) > 0 {
			return ""
		}
	}
	if w.rand.IntN(4) == 0 {
		w.m.Divide(llama.Seq(seq), 0, -1, 2)
		w.m.Remove(llama.Seq(seq), -1, -1) // two tokens of one position cannot be continued
		w.loaded[seq] = false
		return fmt.Sprintf("divide and remove %d", seq)
	}
	n := 1 + w.rand.Int32N(3)
	if w.m.Remove(llama.Seq(seq), 0, llama.Pos(n)) {
		w.m.Shift(llama.Seq(seq), llama.Pos(n), -1, -llama.Pos(n))
	}
	return fmt.Sprintf("shift %d by %d", seq, n)
}

func (w *walker) save(seq int) (string, error) {
	if w.next[seq] == 0 {
		return "", nil
	}
	path := filepath.Join(w.Folder, fmt.Sprint("state-", len(w.saved)))
	if err := w.x.SaveSequence(path, llama.Seq(seq), nil); err != nil {
		return "save", err
	}
	w.saved = append(w.saved, path)
	return fmt.Sprintf("save %d", seq), nil
}

func (w *walker) load(seq int) (string, error) {
	if len(w.saved) == 0 {
		return "", nil
	}
	w.m.Remove(llama.Seq(seq), -1, -1)
	if _, err := w.x.LoadSequence(w.saved[w.rand.IntN(len(w.saved))], llama.Seq(seq)); err != nil {
		w.loaded[seq] = false
		return fmt.Sprintf("could not load %d: %v", seq, err), nil
	}
	w.loaded[seq] = true
	return fmt.Sprintf("load %d", seq), nil
}
