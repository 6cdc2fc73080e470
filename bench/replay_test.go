package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llamatap/llamatap/kvcache"
)

// TestReplayFailures: whatever a server does to a request, its row has the cause, and the others are counted; no more
// of them are under way than were admitted.
func TestReplayFailures(t *testing.T) {
	const end = `data: {"stop":true,"timings":{"cache_n":1,"prompt_n":2,"predicted_n":3}}` + "\n\n"
	answers := []string{"data: {\"content\":\"a\"}\n\n" + end, "", "data: {\n",
		`data: {"error":{"message":"no"}}` + "\n", end}
	var under, most atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/props":
			fmt.Fprint(w, `{"default_generation_settings":{"n_ctx":1000}}`)
		case "/v1/models":
			fmt.Fprint(w, `{"data":[{"meta":{"n_vocab":32}}]}`)
		default:
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			var asked struct {
				N      int     `json:"n_predict"`
				Prompt []int32 `json:"prompt"`
			}
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Prompt) != 3 {
				t.Errorf("%+v, %v", asked, err)
			}
			if asked.N == len(answers) {
				http.Error(w, "full", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, answers[asked.N])
		}
	}))
	defer s.Close()
	r := Replay{URL: s.URL, Block: 2, Speed: 1, Concurrency: 2}
	for n := range int64(len(answers) + 1) {
		r.Trace = append(r.Trace, kvcache.TraceRequest{Input: 3, Output: n, IDs: []int64{0, n}})
	}
	r.Trace = append(r.Trace, kvcache.TraceRequest{Input: 998, Output: 3})
	rows := map[int]*ReplayRow{}
	r.Each = func(row *ReplayRow) error { rows[row.Index] = row; return nil }
	p, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"stream": 3, "http_503": 1, "too_long": 1}
	if !maps.Equal(p.Errors, want) || p.Answered != 2 || p.Sent != 7 || p.Cached != 2 || p.Output != 6 ||
		most.Load() > 2 {
		t.Errorf("%+v, %d at a time; want %v", p, most.Load(), want)
	}
	for i, cause := range []string{"", "stream", "stream", "stream", "", "http_503", "too_long"} {
		if row := rows[i]; row.Cause != cause || (row.TookMS != nil) != (cause == "") {
			t.Errorf("%+v, want %q", row, cause)
		}
	}
	var text strings.Builder
	const line = "1 requests failed, http_503: 503"
	if err := p.Write(&text, false); err != nil || !strings.Contains(text.String(), line) {
		t.Errorf("%s%v", text.String(), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if p, err := r.Run(ctx); err == nil {
		t.Errorf("a replay that was stopped: %+v", p)
	}
	s.Close()
	if _, err := r.Run(t.Context()); err == nil {
		t.Error("no server, and no error")
	}
}

// TestVocabulary: blocks of equal ids are equal, of different ids different, and all tokens are within the middle half.
func TestVocabulary(t *testing.T) {
	v := newVocabulary(40)
	seen := map[string]bool{}
	for id := range int64(400) {
		q := kvcache.TraceRequest{Input: 7, IDs: []int64{1, id}}
		tokens := v.tokens(&q, 4)
		if !slices.Equal(tokens, v.tokens(&q, 4)) || len(tokens) != 7 || slices.Min(tokens) < 10 ||
			slices.Max(tokens) >= 30 {
			t.Fatalf("%d", tokens)
		}
		seen[fmt.Sprint(tokens[4:6])] = true // the first two of its second block
	}
	if len(seen) != 400 {
		t.Errorf("%d different blocks of 400 ids", len(seen))
	}
}
