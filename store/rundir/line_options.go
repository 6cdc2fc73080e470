package rundir

import (
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"
	"time"
)

// LineOptions says where lines go, and how. Create and Name must be given; for the rest zero means what stands there.
type LineOptions struct {
	// Create makes a file by name. A line that its Close fails on is lost.
	Create func(name string) (io.WriteCloser, error)
	// Name is that of the first part: resource.jsonl. See [PartName].
	Name string
	// Kinds are the names of the kinds of lines that Append takes.
	Kinds []string
	// BufferBytes is what is held before it is written; 256 KiB.
	BufferBytes int
	// Buffered, unless it is nil, gets how many bytes are held: several writers may share it.
	Buffered *atomic.Int64
	// FlushEvery is the longest that a line waits; 1 s. Below 0 only a full buffer and Flush write.
	FlushEvery time.Duration
	// PartBytes is the size from which on a part is followed by the next; one part.
	PartBytes int64
	// Limits has, by kind, how many lines are written within one second; 0, or a kind after its end: all.
	Limits []int
	// Loss appends to dst a line, without line feed, that describes lost lines; nil: they are only counted. It is
	// called under the writer's lock.
	Loss func(dst []byte, l LineLoss) []byte
}

// The causes of losses.
const (
	CauseRate  = "rate"        // more lines of a kind within a second than the limit
	CauseFull  = "disk_full"   // no space, or a quota
	CauseWrite = "write_error" // any other error
)

var causes = [...]string{CauseRate, CauseFull, CauseWrite}

// LineLoss is lines of one kind that were lost by one cause.
type LineLoss struct {
	Kind  int // index into LineOptions.Kinds
	Cause string
	Count uint64
}

// LineStats is what a writer did.
type LineStats struct {
	Lines uint64            // handed to Append, and those of losses
	Lost  map[string]uint64 // of them, by cause
	Bytes int64             // written
	Parts int
	Err   error // first error of a file
}

// PartName is the name of a part, counted from 0: resource.jsonl, resource.1.jsonl, resource.2.jsonl … in the order
// of time. A part begins with a whole line.
func PartName(name string, part int) string {
	if part == 0 {
		return name
	}
	ext := path.Ext(name)
	return fmt.Sprintf("%s.%d%s", strings.TrimSuffix(name, ext), part, ext)
}
