package mrm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/cli"
)

// journalName is the file in which an experiment notes what happened, below output.dir/.mrm/NAME. It contains
// nothing that the sealed directories do not: without it, an experiment continues as well, and knows less of how long
// cells take.
const journalName = "journal.jsonl"

// entry is a line of the journal.
type entry struct {
	Time       time.Time    `json:"time"`
	Event      string       `json:"event"` // begun, sealed, failed, interrupted, removed
	Cell       string       `json:"cell"`  // in words
	Index      int          `json:"index"`
	Key        string       `json:"key"`
	Repetition int          `json:"repetition"`
	Run        string       `json:"run,omitempty"` // directory of the sealed run
	Class      memory.Class `json:"class,omitempty"`
	TookS      float64      `json:"took_s,omitempty"`
	Why        string       `json:"why,omitempty"`
}

// note appends an entry. Each is one write to the end of the file, so that several processes may do that.
func note(folder string, cell *Cell, e entry) error {
	e.Time, e.Cell, e.Index, e.Key, e.Repetition = time.Now().UTC().Truncate(time.Millisecond), cell.Name(),
		cell.Index, cell.Key, cell.Repetition
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, journalName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("note in the journal: %w", err)
	}
	line = append(line, '\n')
	if info, err := file.Stat(); err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err := file.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...) // a kill cut the last one off
		}
	}
	_, err = file.Write(line)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("note in the journal: %w", err)
	}
	return nil
}

// maxJournal bounds a journal in bytes: a cell notes a few hundred.
const maxJournal = 64 << 20

// readJournal reads the journal of an experiment; without one it is empty. A line that is not an entry, such as a line
// that a kill cut off, is passed over.
func readJournal(out, experiment string) ([]entry, error) {
	text, err := cli.ReadFile(filepath.Join(out, workFolder, experiment, journalName), maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var entries []entry
	for line := range bytes.Lines(text) {
		var e entry
		if json.Unmarshal(line, &e) == nil && e.Event != "" {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// took is how long a cell takes, by the journal: the median of those that were sealed; 0: there were none.
func took(entries []entry) float64 {
	var all []float64
	for _, e := range entries {
		if e.Event == "sealed" && e.TookS > 0 {
			all = append(all, e.TookS)
		}
	}
	return middle(all)
}
