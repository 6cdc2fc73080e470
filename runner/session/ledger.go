//go:build linux

package session

import (
	"fmt"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/stream"
)

// accesses is the recorder of what graphs read and write.
type accesses struct {
	*ledger.Recorder
}

// newAccesses makes the recorder, of the regions that a map knows.
func newAccesses(r *run, table *ledger.Table, regions *regionMap) *accesses {
	o := ledger.Options{Table: table, Map: regions.Map(), UnixOffset: r.unixOffset(), Block: int64(r.o.Tap.KVBlock)}
	if r.o.Tap.Ledger == config.LedgerWindows {
		o.Window = r.o.Tap.LedgerWindow
	}
	return &accesses{ledger.NewRecorder(o)}
}

// tick completes a part that is old enough, while nothing comes.
func (a *accesses) tick() error {
	if a == nil {
		return nil
	}
	return a.Tick(stream.MonoNS())
}

// accessUse is what metadata.json says of the ledger.
type accessUse struct {
	memtrace.Ledger
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`               // of the table, with what others wrote into it
	Lost  int64 `json:"lost_rows,omitempty"` // given, and not on the disk
	// Source is where these figures come from.
	Source string `json:"source"`
}

func (a *accesses) use(t *ledger.Table) accessUse {
	_, lost := t.Rows()
	return accessUse{Ledger: a.Doubts(), Rows: a.Rows(), Bytes: t.Bytes(), Lost: lost, Source: "computed"}
}

// summaryText reports how much was recorded.
func (a *accesses) summaryText() string {
	d := a.Doubts()
	text := fmt.Sprintf("accesses  %d of %s, in %s", d.Accesses, present.Plural(d.Executions, "graph"),
		present.Plural(a.Rows(), "row"))
	if n := d.Unplaced + d.Unreported + d.Failed; n > 0 {
		text += fmt.Sprintf("; %d operands or graphs are incomplete", n)
	}
	return text
}
