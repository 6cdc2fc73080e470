package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/llamatap/llamatap/kvcache"
)

// A Replay sends the requests of a trace to a llama-server at the trace's times. Prompts are synthetic token ids: equal
// hash ids of the trace are equal tokens, so that what requests share is what they shared when the trace was made.
type Replay struct {
	URL         string
	Trace       []kvcache.TraceRequest
	Block       int     // tokens per hash id
	Speed       float64 // trace seconds per second
	Concurrency int     // requests under way at most; what must wait for that is late
	// Each takes a row as soon as its request has ended, from one goroutine at a time; nil: nobody does.
	Each   func(*ReplayRow) error
	client *http.Client
	vocab  vocabulary
	room   int64 // tokens of a slot
}

// A ReplayRow is the outcome of a request. Times are in milliseconds: the trace's, and since the replay began. What is
// not known is absent.
type ReplayRow struct {
	Index    int      `json:"index"` // in the trace, by time
	TraceMS  float64  `json:"timestamp"`
	DueMS    float64  `json:"due_ms"`
	SentMS   float64  `json:"sent_ms"`
	LateMS   float64  `json:"late_ms"` // sent after it was due
	Input    int64    `json:"input_length"`
	Output   int64    `json:"output_length"`
	Shared   int64    `json:"shared_tokens"` // of the prompt, those in blocks that an earlier line of the trace has
	Cached   *int64   `json:"cached_tokens,omitempty"`
	Computed *int64   `json:"computed_tokens,omitempty"`
	Chosen   *int64   `json:"output_tokens,omitempty"`
	FirstMS  *float64 `json:"ttft_ms,omitempty"` // from sending to the first event of the answer's stream
	TookMS   *float64 `json:"latency_ms,omitempty"`
	TokenMS  *float64 `json:"time_per_output_token_ms,omitempty"` // after the first token
	Error    string   `json:"error,omitempty"`
	Cause    string   `json:"error_cause,omitempty"` // too_long, http_NNN, connection, stream
}

// Run replays the trace and returns the outcome of it, with a row for each request that was sent, by its line. It ends
// early, with the error of ctx, when that does; requests under way are broken off.
func (r *Replay) Run(ctx context.Context) (*ReplayReport, error) {
	// Connections are not shared and not limited, so that a request never waits for another one's.
	r.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if err := r.fetchProperties(ctx); err != nil {
		return nil, err
	}
	rows := make([]*ReplayRow, len(r.Trace))
	room := make(chan struct{}, r.Concurrency)
	var all sync.WaitGroup
	var lock sync.Mutex
	var failed error
	seen := map[int64]bool{}
	begin := time.Now()
	for i := range r.Trace {
		row := r.row(i, seen)
		body, err := r.body(&r.Trace[i])
		if err != nil {
			return nil, err
		}
		if !sleepUntil(ctx, begin.Add(time.Duration(row.DueMS*1e6)), room) {
			break
		}
		rows[i] = row
		row.SentMS = since(begin)
		row.LateMS = row.SentMS - row.DueMS
		all.Go(func() {
			r.send(ctx, row, body)
			<-room
			lock.Lock()
			defer lock.Unlock()
			if r.Each != nil && failed == nil {
				failed = r.Each(row)
			}
		})
	}
	all.Wait()
	return newReplayReport(r, rows, time.Since(begin)), errors.Join(context.Cause(ctx), failed)
}

// sleepUntil waits for a time, and then for room. It reports whether both came before the end of ctx.
func sleepUntil(ctx context.Context, due time.Time, room chan struct{}) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func since(begin time.Time) float64 { return float64(time.Since(begin)) / 1e6 }

// row is a request before it is sent. seen are the hash ids of earlier lines.
func (r *Replay) row(i int, seen map[int64]bool) *ReplayRow {
	q := &r.Trace[i]
	row := &ReplayRow{Index: i, TraceMS: q.TimeMS, Input: q.Input, Output: q.Output}
	row.DueMS = (q.TimeMS - r.Trace[0].TimeMS) / r.Speed
	prefix := true
	for k, id := range q.IDs {
		if prefix = prefix && seen[id]; prefix {
			row.Shared = min(int64(k+1)*int64(r.Block), q.Input)
		}
		seen[id] = true
	}
	return row
}

// body is what a request posts.
func (r *Replay) body(q *kvcache.TraceRequest) ([]byte, error) {
	if r.room > 0 && q.Input+q.Output > r.room {
		return nil, nil
	}
	return json.Marshal(map[string]any{"cache_prompt": true, "ignore_eos": true, "n_predict": q.Output,
		"prompt": r.vocab.tokens(q, r.Block), "stream": true, "temperature": 0})
}

// fetchProperties asks the server what it serves.
func (r *Replay) fetchProperties(ctx context.Context) error {
	var props struct {
		Slots    int64 `json:"total_slots"`
		Defaults struct {
			Room int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	var models struct {
		Data []struct {
			Meta struct {
				Vocab int32 `json:"n_vocab"`
			} `json:"meta"`
		} `json:"data"`
	}
	for path, answer := range map[string]any{"/props": &props, "/v1/models": &models} {
		if err := r.get(ctx, path, answer); err != nil {
			return fmt.Errorf("ask %s%s: %w: is it a llama-server that has loaded its model?", r.URL, path, err)
		}
	}
	if len(models.Data) == 0 || models.Data[0].Meta.Vocab < 8 {
		return fmt.Errorf("%s/v1/models does not name the size of the vocabulary: replay against a llama-server", r.URL)
	}
	r.room, r.vocab = props.Defaults.Room, newVocabulary(models.Data[0].Meta.Vocab)
	return nil
}

// get reads a JSON answer of at most 16 MiB.
func (r *Replay) get(ctx context.Context, path string, answer any) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return err
	}
	response, err := r.client.Do(ask)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(answer)
}
