//go:build linux

package session

import (
	"io"
	"sync/atomic"

	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/rundir"
)

// trace is the table of accesses of a run, whoever records them.
type trace struct {
	*rundir.Dir
	table *ledger.Table // nil: nobody does
	bytes atomic.Int64  // written
}

// open makes the table. Its files appear part by part.
func (t *trace) open(dir *rundir.Dir, memory int64) {
	t.Dir = dir
	t.table = ledger.NewTable(ledger.TableOptions{Folder: t, Memory: memory})
}

// close completes the table, when its recorders are closed. What was complete before an error stays.
func (t *trace) close() error {
	if t.table == nil {
		return nil
	}
	return t.table.Close()
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
