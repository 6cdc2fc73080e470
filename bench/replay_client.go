package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxEvent bounds an event of an answer's stream in bytes: the last one repeats the prompt.
const maxEvent = 64 << 20

// event is a part of a streamed answer.
type event struct {
	Stop    bool `json:"stop"`
	Timings *struct {
		Cached   int64 `json:"cache_n"`
		Computed int64 `json:"prompt_n"`
		Chosen   int64 `json:"predicted_n"`
	} `json:"timings"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// send posts a request and follows its answer to the end. A body of nil is a request that fits into no slot.
func (r *Replay) send(ctx context.Context, row *ReplayRow, body []byte) {
	fail := func(cause, format string, args ...any) {
		row.Cause, row.Error = cause, fmt.Sprintf(format, args...)
	}
	if body == nil {
		fail("too_long", "%d tokens do not fit into a slot of %d", row.Input+row.Output, r.room)
		return
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/completion", bytes.NewReader(body))
	if err != nil {
		fail("connection", "%v", err)
		return
	}
	ask.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	response, err := r.client.Do(ask)
	if err != nil {
		fail("connection", "%v", err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300)) // what came of the reason will do
		fail(fmt.Sprintf("http_%d", response.StatusCode), "%s: %s", response.Status, bytes.TrimSpace(text))
		return
	}
	last, err := row.follow(response.Body, begin)
	took := since(begin)
	switch {
	case err != nil:
		fail("stream", "%v", err)
	case last.Error != nil:
		fail("stream", "%s", last.Error.Message)
	case !last.Stop || last.Timings == nil:
		fail("stream", "the answer ended without its figures")
	default:
		row.Cached, row.Computed, row.Chosen = &last.Timings.Cached, &last.Timings.Computed, &last.Timings.Chosen
		row.TookMS = &took
		if n := last.Timings.Chosen; n > 1 {
			row.TokenMS = new((took - *row.FirstMS) / float64(n-1))
		}
	}
}

// follow reads the events of an answer's stream and returns the last one.
func (row *ReplayRow) follow(body io.Reader, begin time.Time) (last event, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if row.FirstMS == nil {
			row.FirstMS = new(since(begin))
		}
		last = event{}
		if err := json.Unmarshal(data, &last); err != nil {
			return last, fmt.Errorf("an event of the stream: %w", err)
		}
		if last.Stop || last.Error != nil {
			return last, nil
		}
	}
	return last, lines.Err()
}
