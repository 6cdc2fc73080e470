package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// ProfType says what an event of llamatap host prof tells. It stands in the key "type".
type ProfType string

// The types (COMPAT ).
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

// ProfHeader is what each event of llamatap host prof has (COMPAT A-91). A collector leaves it empty; Stamp fills it in.
type ProfHeader struct {
	TSNS   int64             `json:"ts_ns"`   // Unix ns at the end of the interval
	TS     string            `json:"ts"`      // the same in UTC, ISO 8601 with the offset
	Type   ProfType          `json:"type"`    //
	CorrID *string           `json:"corr_id"` // what the model did then, see CorrID; null where it was asked not to be told
	Labels map[string]string `json:"labels"`  // as --labels gave them; {} without
	// IntervalS is the measured length of the interval in seconds, which all rates are of; MonoNS its end on CLOCK_MONOTONIC.
	IntervalS float64 `json:"interval_s"`
	MonoNS    int64   `json:"mono_ns"`
	// Origin says how the figures were got: bpf, bpf_plain (tracepoints without BTF) or proc (polled from /proc).
	Origin string `json:"origin,omitempty"`
}

// A ProfEvent is one line of llamatap host prof: a pointer to one of ProfDisk, ProfSyscall, ProfMem, ProfSched and ProfNet.
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

// AppendProfEvent appends an event as a line of JSON, compact and with the keys of all its objects sorted, as system A writes it.
func AppendProfEvent(dst []byte, e ProfEvent) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return dst, fmt.Errorf("write event of type %s: %w", e.Head().Type, err)
	}
	// Maps are written with their keys sorted. Numbers pass through as text, so that none loses digits.
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return dst, fmt.Errorf("write event of type %s: %w", e.Head().Type, err)
	}
	out := bytes.NewBuffer(dst)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		return dst, fmt.Errorf("write event of type %s: %w", e.Head().Type, err)
	}
	return out.Bytes(), nil
}

// ParseProfEvent reads a line that AppendProfEvent or system A wrote. Keys that it does not know are passed over.
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
