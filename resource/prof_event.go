package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ProfType is the type of an event of llamatap host prof, the value of the key "type".
type ProfType string

// The types.
const (
	ProfTypeDisk    ProfType = "disk"
	ProfTypeSyscall ProfType = "syscall"
	ProfTypeSync    ProfType = "sync"
	ProfTypeMem     ProfType = "mem"
	ProfTypeSched   ProfType = "sched"
	ProfTypeNet     ProfType = "net"
)

// ProfTypes are all types, in the order in which an interval's events are written.
var ProfTypes = []ProfType{ProfTypeDisk, ProfTypeSyscall, ProfTypeSync, ProfTypeMem, ProfTypeSched, ProfTypeNet}

// ProfHeader is what each event of llamatap host prof has. A collector leaves it empty; Stamp fills
// it in.
type ProfHeader struct {
	TSNS   int64             `json:"ts_ns"`   // Unix ns at the end of the interval
	TS     string            `json:"ts"`      // the same in UTC, ISO 8601 with the offset
	Type   ProfType          `json:"type"`    //
	CorrID *string           `json:"corr_id"` // what the model did then, see CorrID; null if correlation is disabled
	Labels map[string]string `json:"labels"`  // as --labels gave them; {} without
	// IntervalS is the measured length of the interval in seconds, which all rates but those of disks are of; MonoNS
	// its end on CLOCK_MONOTONIC.
	IntervalS float64 `json:"interval_s"`
	MonoNS    int64   `json:"mono_ns"`
	// Origin says how the figures were got: bpf, bpf_plain (tracepoints without BTF) or proc (polled from /proc).
	Origin string `json:"origin,omitempty"`
	// Lost is what syscall, sync and net could not count, by cause, since the events before: on one event of an
	// interval.
	Lost map[string]uint64 `json:"lost,omitempty"`
}

// A ProfEvent is one line of llamatap host prof: a pointer to one of ProfDisk, ProfSyscall, ProfMem, ProfSched and
// ProfNet.
type ProfEvent interface {
	// Head returns the event's header, for writing as well.
	Head() *ProfHeader
}

// Head returns the header itself, so that what embeds it is a ProfEvent.
func (h *ProfHeader) Head() *ProfHeader { return h }

// ProfStamp is what all events of one interval have in common.
type ProfStamp struct {
	Now      time.Time
	MonoNS   int64
	Interval time.Duration // measured
	CorrID   string        // "" is none
	Labels   map[string]string
}

// On fills in the common part of events; their type and origin are the collectors' own.
func (s ProfStamp) On(events []ProfEvent) {
	labels := s.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	for _, e := range events {
		h := e.Head()
		h.TSNS, h.TS = s.Now.UnixNano(), s.Now.UTC().Format("2006-01-02T15:04:05.000000+00:00")
		h.MonoNS, h.IntervalS, h.Labels = s.MonoNS, s.Interval.Seconds(), labels
		if s.CorrID != "" {
			id := s.CorrID
			h.CorrID = &id
		}
	}
}

// sortedJSON is v as JSON with the keys of all its objects sorted: maps are written so. Numbers pass through as
// text, so that none loses digits.
func sortedJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // whoever encodes the event decides that
	err = enc.Encode(tree)
	return out.Bytes(), err
}

// MarshalJSON writes the keys sorted.
func (e *ProfDisk) MarshalJSON() ([]byte, error) {
	type plain ProfDisk
	return sortedJSON((*plain)(e))
}

// MarshalJSON writes the keys sorted.
func (e *ProfSyscall) MarshalJSON() ([]byte, error) {
	type plain ProfSyscall
	return sortedJSON((*plain)(e))
}

// MarshalJSON writes the keys sorted.
func (e *ProfMem) MarshalJSON() ([]byte, error) {
	type plain ProfMem
	return sortedJSON((*plain)(e))
}

// MarshalJSON writes the keys sorted.
func (e *ProfSched) MarshalJSON() ([]byte, error) {
	type plain ProfSched
	return sortedJSON((*plain)(e))
}

// MarshalJSON writes the keys sorted.
func (e *ProfNet) MarshalJSON() ([]byte, error) {
	type plain ProfNet
	return sortedJSON((*plain)(e))
}

// ParseProfEvent reads a line that AppendProfEvent or STRAP-LLM wrote. Keys that it does not know are passed over.
func ParseProfEvent(line []byte) (ProfEvent, error) {
	var head struct {
		Type ProfType `json:"type"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("event of host prof: %w", err)
	}
	e := newProfEvent(head.Type)
	if e == nil {
		return nil, fmt.Errorf("event of host prof: unknown type %.40q: known are %v", head.Type, ProfTypes)
	}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("event of host prof of type %s: %w", head.Type, err)
	}
	return e, nil
}

// ParseProfTypes reads a list of types as --only has it: names with commas between them, "syscalls" as well as
// "syscall". An empty list is all types.
func ParseProfTypes(list string) ([]ProfType, error) {
	if list == "" {
		return ProfTypes, nil
	}
	var types []ProfType
	for name := range strings.SplitSeq(list, ",") {
		t := ProfType(strings.TrimSpace(name))
		if t == "syscalls" { // as STRAP-LLM calls it here
			t = ProfTypeSyscall
		}
		if newProfEvent(t) == nil {
			return nil, fmt.Errorf("unknown type of events %q: use disk, syscalls, sync, mem, sched, net, with "+
				"commas between them", name)
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types, nil
}

func newProfEvent(t ProfType) ProfEvent {
	switch t {
	case ProfTypeDisk:
		return &ProfDisk{}
	case ProfTypeSyscall, ProfTypeSync:
		return &ProfSyscall{}
	case ProfTypeMem:
		return &ProfMem{}
	case ProfTypeSched:
		return &ProfSched{}
	case ProfTypeNet:
		return &ProfNet{}
	}
	return nil
}
