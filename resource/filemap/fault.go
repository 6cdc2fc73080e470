package filemap

import (
	"strconv"

	"github.com/llamatap/llamatap/resource"
)

var kindNames = [...]string{Fault: "fault", Call: "call", Read: "read", Request: "request"}

// String returns the kind's name as it stands in files.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// fault is the line of one event.
func (r *Recorder) fault(e *Event, h Hit, s *segment, to *sums) *resource.FaultLine {
	l := &resource.FaultLine{
		Kind: e.Kind.String(), Number: r.number, In: s.kind, BeginNS: e.BeginNS, WaitNS: max(0, e.EndNS-e.BeginNS),
		BlockedNS:   e.BlockedNS,
		PreemptedNS: e.PreemptedNS, PID: e.PID, TID: e.TID, Bytes: e.Bytes, Memory: h.Memory, Major: e.Flags&Major != 0,
		FromKernel: e.Flags&FromKernel != 0,
	}
	if e.Flags&Unseen != 0 {
		l.WaitNS = 0 // not known
	}
	if to == &s.after {
		l.In = resource.WaitBetween
	}
	if s.kind == resource.WaitGraph {
		l.Exec = &s.graph.Exec
	}
	if e.Kind == Fault {
		l.Address = "0x" + strconv.FormatUint(e.At, 16)
	}
	if e.Kind == Read {
		l.Bytes = (e.Last - e.First + 1) * r.o.Files.Page
	}
	if e.Kind == Call {
		l.Call = callName(e.Syscall)
	}
	if h.Place >= 0 {
		p, offset := r.o.Files.Place(h.Place), h.Offset
		l.File, l.Tensor, l.Offset = p.File, p.Tensor, &offset
	}
	return l
}
