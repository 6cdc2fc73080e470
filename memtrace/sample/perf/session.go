package perf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Options configure a Session. Events is required, the rest may be zero.
type Options struct {
	// PID is the process, with all threads that it has and will have; 0 is the calling process.
	PID int
	// Events are opened for each thread and CPU. All must have an identity in their samples (sampleIdentifier),
	// which Open adds.
	Events []eventSpec
	// Pages is how large the ring of each CPU is, in pages of memory, a power of two; 0 = 64.
	Pages int
	// Children is true if child processes count too, and theirs: those that it has ([Descendants]), and those that
	// it will have.
	Children bool
	// UserOnly is true if events of the kernel on behalf of the process do not count, which needs fewer rights.
	UserOnly bool
}

// eventSpec is an event to open.
type eventSpec struct {
	Name string
	Attr Attr
	// CPUs are those that the event is opened on; nil: all.
	CPUs []int
	// WithNext is true if the event only counts, as the leader of a group with the next one: the auxiliary event of
	// some Intel CPUs.
	WithNext bool
}

// Stats is what a session has read, and what it could not.
type Stats struct {
	Samples     uint64 // handed on
	Lost        uint64 // records that found no room in a ring, by the kernel's count
	LostSamples uint64 // samples that the hardware dropped
	Throttles   uint64 // times at which the kernel stopped an event for a while because it came too often
	Twice       uint64 // samples of threads that were seen by two events; passed over
	Bad         uint64 // records that could not be decoded
	// WithoutAddress are samples of operations that touch no memory, of a [Sampler].
	WithoutAddress uint64
}

// ErrOpen means that an event cannot be opened on this machine, or with this user's rights. The error that wraps it
// names cause and remedy.
var ErrOpen = errors.New("cannot sample")

// ErrRing means that the kernel does not give this user a ring of that size; a smaller one may be had. It comes with
// ErrOpen.
var ErrRing = errors.New("no ring of samples")

// ErrGone occurs when the process has ended.
var ErrGone = errors.New("the process is gone")

// parseCPUs reads a list of CPUs as sysfs has it: 0-3,8.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("list of CPUs %q: want numbers and ranges such as 0-3,8", list)
		}
		for n := from; n <= to; n++ {
			cpus = append(cpus, int(n))
		}
	}
	return cpus, nil
}
