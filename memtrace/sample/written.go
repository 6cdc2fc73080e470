package sample

import (
	"errors"

	"github.com/llamatap/llamatap/memtrace"
)

// Range is memory of a process, from Start up to but not including End.
type Range struct {
	Start, End uint64
	// Gone is true if there is no memory any more: the process gave the pages back (MADV_DONTNEED), and they read as
	// zeros.
	Gone bool
}

// Bytes is how much memory it is.
func (r Range) Bytes() uint64 { return r.End - r.Start }

// Access says in words that a range was found written by a scan.
func (r Range) Access(pid int, scanNS int64) memtrace.Access {
	a := memtrace.Access{
		TimeNS: scanNS, Addr: r.Start, Size: r.Bytes(), PID: int32(pid), TID: int32(pid), CPU: -1, Weight: 1,
		Op: memtrace.OpWrite, Collector: memtrace.CollectorPage,
	}
	if r.Gone {
		a.Op = memtrace.OpFree
	}
	return a
}

// WrittenEnv is what a process must have in its environment when it starts, with the tap preloaded or linked, so that
// its writes can be watched.
const WrittenEnv = "LLAMATAP_TAP_WRITTEN=1"

// Errors of watching.
var (
	// ErrWatch means that written pages cannot be watched. The error that wraps it names cause and remedy.
	ErrWatch = errors.New("cannot watch written pages")
	// ErrRange occurs when memory of a watched range was given back and mapped anew: what was written to it is not
	// known. Add it again.
	ErrRange = errors.New("a watched range was mapped anew")
)

// around widens a range to whole pages.
func around(r Range, page uint64) Range {
	return Range{Start: r.Start &^ (page - 1), End: (r.End + page - 1) &^ (page - 1)}
}
