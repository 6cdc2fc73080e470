package process

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// maxRuns is how many stretches of rows a call lists; the rows of others are Beyond.
const maxRuns = 16

// Kinds of events.
const (
	kindBegin = 1
	kindEnd   = 2
	kindShift = 3
)

// record is an event as calls.h has it.
type record struct {
	At, Context                            uint64
	TID, Kind                              uint32
	Result                                 int32
	Rows, Outputs, Beyond, RunsN, Extended uint32
	Runs                                   [maxRuns]callRun
}

// callRun is a stretch of rows of a call that belong to one sequence, whose positions follow one another.
type callRun struct {
	Sequence int32
	Position int32 // of the first row; -1: llama.cpp chose it
	Rows     uint32
	Outputs  uint32 // rows whose logits were asked for
}

// call is a batch that was computed.
type call struct {
	Context    uint64 // address of the llama_context
	BeginNS    int64  // CLOCK_MONOTONIC
	EndNS      int64
	Rows       int
	Outputs    int
	Runs       []callRun
	BeyondRows int   // rows in none of Runs
	Result     int32 // of the function: 0 is success
}

// joiner pairs the beginnings and ends of calls, by thread, for a tracker.
type joiner struct {
	open      map[uint32]*call
	tracker   tracker
	unwatched bool // the rows of a llama_batch_ext are not counted any more
}

// add takes an event.
func (j *joiner) add(raw []byte) error {
	var r record
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, &r); err != nil {
		return fmt.Errorf("an event of a call has %d bytes: %w", len(raw), err)
	}
	switch r.Kind {
	case kindBegin:
		if j.open == nil {
			j.open = map[uint32]*call{}
		}
		j.open[r.TID] = &call{Context: r.Context, BeginNS: int64(r.At), Rows: int(r.Rows), Outputs: int(r.Outputs),
			BeyondRows: int(r.Beyond), Runs: append([]callRun{}, r.Runs[:min(r.RunsN, maxRuns)]...)}
		if j.unwatched && r.Extended != 0 { // the rows are those of an earlier batch
			j.open[r.TID] = &call{Context: r.Context, BeginNS: int64(r.At)}
		}
	case kindEnd:
		c := j.open[r.TID]
		delete(j.open, r.TID)
		if c != nil { // its beginning was not lost
			c.EndNS, c.Result = int64(r.At), r.Result
			j.tracker.Add(c)
		}
	case kindShift:
		j.tracker.Shift(r.Runs[0].Sequence, r.Runs[0].Position)
	}
	return nil
}

// flush is [tracker.flush], with the calls that have not ended.
func (j *joiner) flush(now int64, all bool) ([]callFigures, []CallRequest) {
	for _, c := range j.open {
		j.tracker.computing(c.Context, c.BeginNS, now)
	}
	return j.tracker.flush(now, all)
}
