package stream

import "sync/atomic"

// roomFile is a blockFile whose file system can be asked to keep room after its end. Its size does not change by
// that, so no reader sees the room, and what a writer that was killed leaves of it goes with the next cut.
type roomFile interface {
	blockFile
	// Allocate keeps room from a place on.
	Allocate(at, n int64) error
	// Trim gives back the room after the file's end. Nothing may be written meanwhile.
	Trim() error
	// Free is how many bytes the file system has left.
	Free() (int64, error)
}

// freeShare is the share of the free disk that is kept ahead at most: others write to it as well.
const freeShare = 64

// ahead keeps room on the disk for what is to be written next, in large steps: the file lies in few pieces then,
// and hardly a write has to look for blocks. It is not a promise that is needed: where the file system knows no such
// thing, or refuses, it is done without, and whether the disk is full is for the writes to find out.
//
// prepare, wrote and release belong to whoever writes; the rest may be used by everyone.
type ahead struct {
	file    roomFile
	refused bool
	most    atomic.Int64 // bytes to keep
	kept    atomic.Int64 // where the room ends; 0: there is none
	end     atomic.Int64 // of what is written
}

// newAhead is nil where the file system cannot be asked.
func newAhead(f File, most int64) *ahead {
	file, ok := f.(roomFile)
	if !ok {
		return nil
	}
	a := &ahead{file: file}
	a.limit(most)
	return a
}

// limit says how many bytes may be kept from now on. What is kept already stays.
func (a *ahead) limit(most int64) {
	if a != nil {
		a.most.Store(most)
	}
}

// left is how many bytes are kept and not written yet.
func (a *ahead) left() int64 {
	if a == nil {
		return 0
	}
	return max(0, a.kept.Load()-a.end.Load())
}

// prepare sees to it that there is room before n bytes are written. A step that would hardly hold more than these
// is none.
func (a *ahead) prepare(at, n int64) {
	if a == nil || a.refused || at+n <= a.kept.Load() || a.most.Load() < 2*n {
		return
	}
	free, err := a.file.Free()
	step := min(a.most.Load(), free/freeShare) &^ (BlockAlign - 1)
	if err == nil && step < 2*n {
		return
	}
	if err == nil {
		err = a.file.Allocate(at, step)
	}
	if err != nil {
		a.refused = true
		a.kept.Store(at + n) // it may have kept some
		a.release()
		return
	}
	a.kept.Store(at + step)
}

// wrote notes the end of what is written.
func (a *ahead) wrote(end int64) {
	if a != nil {
		a.end.Store(end)
	}
}

// release gives back what is kept, and reports whether there was something. That it could not is no harm to what is
// written.
func (a *ahead) release() bool {
	if a == nil || a.kept.Swap(0) == 0 {
		return false
	}
	return a.file.Trim() == nil
}
