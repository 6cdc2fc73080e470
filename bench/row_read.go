package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxFile bounds a file of rows; a larger one is something else.
const maxFile = 128 << 20

// ErrNoRows occurs when a file holds no row.
var ErrNoRows = errors.New("no rows of a benchmark: give what -o json or -o jsonl of 'llamatap bench' or " +
	"llama-bench wrote")

// ReadRows reads the rows of a json or jsonl form, ours or llama-bench's. Keys that it does not know are passed over,
// and a setting that is not there has llama.cpp's default, for another version of llama-bench has others.
func ReadRows(in io.Reader) ([]Row, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	list := bytes.HasPrefix(bytes.TrimSpace(data), []byte("["))
	if list {
		_, err = decoder.Token()
	}
	var rows []Row
	for err == nil && decoder.More() {
		row := NewRow()
		if err = decoder.Decode(&row); err == nil {
			rows = append(rows, row)
		}
	}
	if list && err == nil {
		_, err = decoder.Token() // the list may have been cut
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoRows, err)
	}
	for i := range rows {
		if len(rows[i].SamplesNS) == 0 || rows[i].Prompt+rows[i].Gen <= 0 {
			return nil, fmt.Errorf("%w (row %d has no samples)", ErrNoRows, i+1)
		}
	}
	if len(rows) == 0 {
		return nil, ErrNoRows
	}
	return rows, nil
}
