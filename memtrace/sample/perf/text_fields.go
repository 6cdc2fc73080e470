package perf

import (
	"fmt"
	"slices"
	"strings"
)

// Field is something that perf script prints of a sample, by its name in -F.
type field uint8

// The fields of a sample's line that follow its event, in perf's order, whatever the order in -F was.
const (
	fieldAddr field = iota
	fieldDataSrc
	fieldWeight
	fieldInsLat
	fieldRetireLat
	fieldIP
	fieldSym
	fieldDSO
	fieldPhys
	fieldDataPage
	fieldCodePage
	fieldsTail
)

// tailNames are their names in -F.
var tailNames = map[string]field{
	"addr": fieldAddr, "data_src": fieldDataSrc, "weight": fieldWeight, "ins_lat": fieldInsLat,
	"p_stage_cyc": fieldRetireLat, "retire_lat": fieldRetireLat,
	"ip": fieldIP, "sym": fieldSym, "dso": fieldDSO, "phys_addr": fieldPhys, "data_page_size": fieldDataPage,
	"code_page_size": fieldCodePage,
}

// before are the fields that precede the event, and symoff, which belongs to a symbol.
var before = []string{"comm", "tid", "pid", "cpu", "time", "event", "period", "misc", "symoff"}

// layout is what a line has, after its event.
type layout struct {
	has     [fieldsTail]bool
	noEvent bool
	pidOnly bool // the number of a process is printed without that of the thread
}

// parseFields reads the list of -F.
func parseFields(list string) (*layout, error) {
	l := &layout{noEvent: true}
	pid, tid := false, false
	for name := range strings.SplitSeq(list, ",") {
		if _, after, ok := strings.Cut(name, ":"); ok { // hw:ip,sym
			name = after
		}
		name = strings.TrimSpace(name)
		if f, ok := tailNames[name]; ok {
			l.has[f] = true
			continue
		}
		if !slices.Contains(before, name) {
			return nil, fmt.Errorf("%w: field %q of -F is not read: print "+
				"comm,tid,pid,cpu,time,period,event,addr,data_src,weight,ins_lat,ip,sym,symoff,dso,phys_addr", ErrText,
				name)
		}
		l.noEvent = l.noEvent && name != "event"
		pid, tid = pid || name == "pid", tid || name == "tid"
	}
	if l.noEvent {
		return nil, fmt.Errorf("%w: -F %q leaves the event out: print it too", ErrText, list)
	}
	l.pidOnly = pid && !tid
	return l, nil
}
