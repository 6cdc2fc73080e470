//go:build linux

package session

import (
	"io"
	"sync/atomic"

	"github.com/llamatap/llamatap/memtrace/record"
	"github.com/llamatap/llamatap/store/rundir"
)

// trace is the table of accesses of a run, whoever records them.
type trace struct {
	*rundir.Dir
	table *record.Table // nil: nobody does
	bytes atomic.Int64  // written
}

// openTrace is the table of accesses, which all their recorders share. Its files appear part by part.
func (s *sink) openTrace() *record.Table {
	if s.trace.table == nil {
		s.trace.Dir = s.dir
		s.trace.table = record.New(record.Options{Folder: &s.trace, Memory: s.budget.heap / 2})
	}
	return s.trace.table
}

// The most bytes that a row takes, of the ledger and where samples are among them, and rows that are packed and not
// written yet.
const (
	ledgerRowBytes = 2
	sampleRowBytes = 16
	groupRows      = 1 << 20
)

// waiting is the most that what is packed and not written yet takes. What is written counts in the run directory.
func (t *trace) waiting(samples bool) int64 {
	if t.table == nil {
		return 0
	}
	waiting := min(t.table.Pending(), groupRows)
	if samples {
		return waiting * sampleRowBytes
	}
	return waiting * ledgerRowBytes
}

// Create makes the file of a part.
func (t *trace) Create(name string) (io.WriteCloser, error) {
	file, err := t.Dir.Create(name)
	if err != nil {
		return nil, err
	}
	return &tracePart{file, t}, nil
}

// tracePart counts what is written.
type tracePart struct {
	io.WriteCloser
	of *trace
}

// Write counts it.
func (p *tracePart) Write(b []byte) (int, error) {
	n, err := p.WriteCloser.Write(b)
	p.of.bytes.Add(int64(n))
	return n, err
}

// closeTrace completes the table, when its recorders are closed. What was complete before an error stays, and the
// run says why it ended.
func (s *sink) closeTrace() {
	if s.trace.table == nil {
		return
	}
	if err := s.trace.table.Close(); err != nil && s.halted == nil {
		s.noteHalt(err)
	}
}
