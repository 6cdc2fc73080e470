//go:build linux

package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// regionMap is the recorder of regions with the file that it writes.
type regionMap struct {
	*ledger.RegionRecorder
	file io.WriteCloser
}

// mappedModel reads the header of a file that is mapped. A model that lies in memory alone is the embedded one, or
// not known.
func mappedModel(path string) (*gguf.File, error) {
	if strings.HasPrefix(path, "/memfd:"+llamatap.DefaultModelName) {
		return gguf.ReadBytes(llamatap.DefaultModel)
	}
	return gguf.Open(path)
}

// Close writes the table and ends the file.
func (r *regionMap) Close() error { return errors.Join(r.RegionRecorder.Close(), r.file.Close()) }

// summaryText reports how much of what was executed is in the map.
func (r *regionMap) summaryText() string {
	regions, doubts := len(r.Map().Regions()), r.Doubts()
	text := fmt.Sprintf("regions   %d of memory, used by %s", regions, present.Plural(doubts.Executions, "graph"))
	if n := doubts.Unplaced + doubts.Overlaps + doubts.Failed; n > 0 {
		text += fmt.Sprintf("; %d operands or graphs could not be placed", n)
	}
	return text
}

// newRegionMap makes the recorder. Its file appears when it is closed.
func newRegionMap(r *run, maps *processMaps) (*regionMap, error) {
	file, err := r.dir.Create(rundir.RegionsName)
	if err != nil {
		return nil, err
	}
	return &regionMap{file: file, RegionRecorder: ledger.NewRegionRecorder(ledger.RegionOptions{
		Out: file, UnixOffset: r.unixOffset(), Now: stream.MonoNS, Model: mappedModel, Maps: maps.read,
	})}, nil
}

// processMaps is what the model's process has mapped, as it was when it was last seen: the process may have ended
// before there is a run directory.
type processMaps struct {
	run  *run
	text []byte
}

// keep keeps what the process has mapped now.
func (m *processMaps) keep() {
	name := fmt.Sprintf("/proc/%d/maps", m.run.pid)
	text, err := os.ReadFile(name)
	after, failed := os.ReadFile(name)
	if err == nil && failed == nil && len(text) > 0 && len(after) > 0 { // else it ended meanwhile
		m.text = text
	}
}

// read is what the process has mapped, or had when it was last seen.
func (m *processMaps) read() (io.Reader, error) {
	m.keep()
	if len(m.text) == 0 {
		return nil, fmt.Errorf("the maps of process %d: %w", m.run.pid, os.ErrNotExist)
	}
	return bytes.NewReader(m.text), nil
}
