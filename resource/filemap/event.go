package filemap

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// every is how often the ring buffer is looked at while something comes, and rarely while little does: each look
// takes a core from the model for as long as two switches take.
const (
	every  = 20 * time.Millisecond
	rarely = 80 * time.Millisecond
)

// Kind is what was waited for or done. The numbers are shared with fault.h.
type Kind uint16

// The kinds.
const (
	Fault   Kind = 1 + iota // a page fault, from its entry to its return
	Call                    // a wait for the disk in a system call
	Read                    // pages that were read into the page cache
	Request                 // a block request that read, from issue to completion
)

var kindNames = [...]string{Fault: "fault", Call: "call", Read: "read", Request: "request"}

// String returns the kind's name as written in files.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Flags say more of an event. The bits are shared with fault.h.
type Flags uint16

// The flags.
const (
	Major      Flags = 1 << iota // fault: the kernel counts it as major
	FromKernel                   // fault: the kernel touched the memory, in a system call
	Slow                         // fault: the page was looked up by itself
	Around                       // fault: pages around it were mapped, First to Last
	Within                       // read: in a page fault
	Failed                       // request: it ended with an error
	Partly                       // request: bytes of it are not of First to Last
	Unseen                       // request: its end was not seen; EndNS is when that was noticed
)

// fileKey names a file as the kernel does: the device of its file system (major<<20 | minor) and its number there.
type fileKey struct {
	Dev uint32
	Ino uint64
}

// Event is one thing that happened. Times are of CLOCK_MONOTONIC.
type Event struct {
	BeginNS, EndNS int64
	At             uint64  // fault: the address; request: its sector of 512 bytes, on BlockDev
	File           fileKey // Dev 0: not known, or no file's
	First, Last    uint64  // pages of the file
	BlockedNS      int64   // fault, call: off the processor to wait
	PreemptedNS    int64   // fault: off the processor to make room
	Bytes          uint64  // request
	BlockDev       uint32  // request: the partition or disk
	TID, PID       uint32  // 0: not a wanted process's
	Syscall        uint32  // call: number of the system call
	Kind           Kind
	Flags          Flags
}

// WaitNS is how long a thread waited; 0 for other events.
func (e *Event) WaitNS() int64 {
	if e.Kind != Fault && e.Kind != Call {
		return 0
	}
	return max(0, e.EndNS-e.BeginNS)
}

// rawSize is the size of struct wait_event of fault.h: nine numbers of 64 bits, then six of 32.
const rawSize = 9*8 + 6*4

// decode reads an event of the ring buffer.
func decode(e *Event, raw []byte) error {
	if len(raw) < rawSize {
		return fmt.Errorf("an event of %d bytes, want %d", len(raw), rawSize)
	}
	n, w := binary.NativeEndian, func(i int) uint64 { return binary.NativeEndian.Uint64(raw[8*i:]) }
	*e = Event{
		BeginNS: int64(w(0)), EndNS: int64(w(1)), At: w(2), File: fileKey{n.Uint32(raw[72:]), w(3)}, First: w(4),
		Last:      w(5),
		BlockedNS: int64(w(6)), PreemptedNS: int64(w(7)), Bytes: w(8), BlockDev: n.Uint32(raw[76:]),
		TID: n.Uint32(raw[80:]), PID: n.Uint32(raw[84:]),
		Syscall: n.Uint32(raw[88:]),
	}
	kind := n.Uint32(raw[92:])
	e.Kind, e.Flags = Kind(kind>>16), Flags(kind)
	if e.Kind < Fault || e.Kind > Request {
		return fmt.Errorf("an event of kind %d", e.Kind)
	}
	return nil
}

// faultLine is the line of one event, without where it belongs.
func faultLine(e *Event, h Hit, files *Files) *resource.FaultLine {
	l := &resource.FaultLine{
		Kind: e.Kind.String(), BeginNS: e.BeginNS, WaitNS: max(0, e.EndNS-e.BeginNS), BlockedNS: e.BlockedNS,
		PreemptedNS: e.PreemptedNS, PID: e.PID, TID: e.TID, Bytes: e.Bytes, Memory: h.Memory, Major: e.Flags&Major != 0,
		FromKernel: e.Flags&FromKernel != 0,
	}
	if e.Flags&Unseen != 0 {
		l.WaitNS = 0 // not known
	}
	if e.Kind == Fault {
		l.Address = "0x" + strconv.FormatUint(e.At, 16)
	}
	if e.Kind == Read {
		l.Bytes = (e.Last - e.First + 1) * files.Page
	}
	if e.Kind == Call {
		l.Call = callName(e.Syscall)
	}
	if h.Place >= 0 {
		p, offset := files.Place(h.Place), h.Offset
		l.File, l.Tensor, l.Offset = p.File, p.Tensor, &offset
	}
	return l
}
