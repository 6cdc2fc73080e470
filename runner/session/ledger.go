//go:build linux

package session

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/memtrace/record"
)

// accesses is the recorder of what graphs read and write.
type accesses struct {
	*ledger.Recorder
}

// tracePart makes the file of the next part of the table of accesses, whoever records it.
func (s *sink) tracePart() (io.WriteCloser, error) {
	file, err := s.dir.Create(record.PartName(int(s.trace.parts.Add(1)) - 1))
	if err != nil {
		return nil, err
	}
	return &tracePart{file, &s.trace}, nil
}

// trace is the table of accesses, whoever records it.
type trace struct {
	parts atomic.Int32
	bytes atomic.Int64 // written
}

// tracePart is a file of it.
type tracePart struct {
	io.WriteCloser
	of *trace
}

// Write counts what is written.
func (p *tracePart) Write(b []byte) (int, error) {
	n, err := p.WriteCloser.Write(b)
	p.of.bytes.Add(int64(n))
	return n, err
}

// openLedger makes the recorder. There must be a map already. Its files appear one after the other.
func (s *sink) openLedger() *accesses {
	o := ledger.Options{
		Create: s.tracePart, Map: s.regions.Map(), UnixOffset: s.clock.UnixNS - s.clock.MonoNS, Block: int64(s.o.Tap.KVBlock),
		BatchRows: int(s.budget.heap / 8 / record.RowBytes),
	}
	if s.o.Tap.Ledger == config.LedgerWindows {
		o.Window = s.o.Tap.LedgerWindow
	}
	s.ledger = &accesses{ledger.NewRecorder(o)}
	return s.ledger
}

// tick completes a part that is old enough, while nothing comes.
func (a *accesses) tick() error {
	if a == nil {
		return nil
	}
	return a.Tick(monotonic())
}

// accessUse is what metadata.json says of the ledger.
type accessUse struct {
	memtrace.Ledger
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"` // of the table, with what others wrote into it
	// Source is where these figures come from.
	Source string `json:"source"`
}

func (a *accesses) use(bytes int64) accessUse {
	return accessUse{Ledger: a.Doubts(), Rows: a.Rows(), Bytes: bytes, Source: "computed"}
}

// words say how much was recorded.
func (a *accesses) words() string {
	d := a.Doubts()
	text := fmt.Sprintf("accesses  %d of %d graphs, in %d rows", d.Accesses, d.Executions, a.Rows())
	if n := d.Unplaced + d.Untold + d.Failed; n > 0 {
		text += fmt.Sprintf("; %d operands or graphs are not told whole", n)
	}
	return text
}
