package export

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
)

// promptKey names a prompt of a recorded run: request Request of sequence Seq.
type promptKey struct{ seq, request int32 }

// promptIDs are the prompts of a file of results.
type promptIDs map[promptKey]promptID

type promptID struct {
	id          string // as the file of prompts gave it; "": it has none
	interrupted bool   // before it had ended
}

// maxResult is the most that one line of results may have.
const maxResult = 64 << 20

// readPromptIDs reads results of 'llamatap run --prompts' (docs/PROMPTS.md). A line without id, sequence or request
// names nothing.
func readPromptIDs(r io.Reader) (promptIDs, error) {
	ids := promptIDs{}
	return ids, ids.read(r)
}

// read adds those of further results.
func (ids promptIDs) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxResult)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			ID       json.RawMessage `json:"id"` // a text or a number
			Seq      *int32          `json:"seq_id"`
			Sequence *int32          `json:"sequence"` // as llamatap 1.0 called it
			Request  *int32          `json:"request"`
			Finish   string          `json:"finish"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("--results: line %d: %w: give the file that 'llamatap run --prompts --results' wrote", n,
				err)
		}
		seq := cmp.Or(line.Seq, line.Sequence)
		if seq == nil || line.Request == nil {
			continue
		}
		var id string
		if line.ID != nil && json.Unmarshal(line.ID, &id) != nil {
			id = string(line.ID)
		}
		ids[promptKey{*seq, *line.Request}] = promptID{id, line.Finish == "interrupted"}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--results: %w", err)
	}
	return nil
}
