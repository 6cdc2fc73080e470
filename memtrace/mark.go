package memtrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of markers.
const (
	MaxMarks    = 10000 // of a recording
	maxMarkName = 64    // bytes
	maxMarkLine = 4096  // bytes
)

// Mark is a marker: from its time on the process is in the phase of that name, until the next one.
type Mark struct {
	Name   string `json:"name"`
	TimeNS int64  `json:"ts_ns"`             // as in trace.parquet
	MonoNS int64  `json:"mono_ns,omitempty"` // CLOCK_MONOTONIC; 0: unknown
	// Phase and Step are the values of these columns of trace.parquet that the name stands for; "": none.
	Phase string `json:"phase,omitempty"`
	Step  string `json:"step,omitempty"`
	// Inferred is true if nobody set the marker: it follows from page faults.
	Inferred bool `json:"inferred,omitempty"`
}

// ErrMark occurs when a marker's name or a file of markers is invalid.
var ErrMark = errors.New("invalid marker")

// markPhases are the names that stand for phases and steps.
var markPhases = map[string][2]string{
	"loading": {WeightLoad.String()}, "prefill": {Generation.String(), "prefill"},
	"decode": {Generation.String(), "decode"}, "warmup": {Setup.String()},
}

// NewMark makes a marker of a name, without a time. A name is printable UTF-8 of 1 to 64 bytes.
func NewMark(name string) (Mark, error) {
	m := Mark{Name: name}
	if name == "" || len(name) > maxMarkName || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Mark{}, fmt.Errorf("%w: name %.80q: use 1 to %d bytes of printable text, such as prefill", ErrMark, name,
			maxMarkName)
	}
	if known, ok := markPhases[name]; ok {
		m.Phase, m.Step = known[0], known[1]
	} else if phase, err := ParsePhase(name); err == nil {
		m.Phase = phase.String()
	}
	return m, nil
}

// ReadMarks reads a file of markers. A last line without its newline, as a recorder that was killed leaves it, is
// left out.
func ReadMarks(r io.Reader) ([]Mark, error) {
	var marks []Mark
	in := bufio.NewReaderSize(r, maxMarkLine)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return marks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrMark, len(marks)+1, err)
		}
		var m Mark
		if err := json.Unmarshal(bytes.TrimSpace(line), &m); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrMark, len(marks)+1, err)
		}
		checked, err := NewMark(m.Name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", len(marks)+1, err)
		case checked.Phase != m.Phase || checked.Step != m.Step:
			return nil, fmt.Errorf("%w: line %d: %q does not stand for phase %.40q, step %.40q", ErrMark, len(marks)+1,
				m.Name, m.Phase, m.Step)
		case len(marks) > 0 && m.TimeNS < marks[len(marks)-1].TimeNS:
			return nil, fmt.Errorf("%w: line %d: it is earlier than the one before", ErrMark, len(marks)+1)
		case len(marks) == MaxMarks:
			return nil, fmt.Errorf("%w: more than %d", ErrMark, MaxMarks)
		}
		marks = append(marks, m)
	}
}

// MarkAt is the number of the newest of some markers at a time, -1 before the first.
func MarkAt(marks []Mark, ns int64) int {
	return sort.Search(len(marks), func(i int) bool { return marks[i].TimeNS > ns }) - 1
}
