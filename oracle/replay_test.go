//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// replayed is a small trace in the form of the published ones. No two requests have the same output_length.
const replayed = `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 30, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}
{"timestamp": 60, "input_length": 1101, "output_length": 3, "hash_ids": [0, 1, 3]}
{"timestamp": 60, "input_length": 512, "output_length": 4, "hash_ids": [0]}
{"timestamp": 90, "input_length": 700, "output_length": 6, "hash_ids": [0, 4]}
{"timestamp": 120, "input_length": 2, "output_length": 2, "hash_ids": [5]}
{"timestamp": 120, "input_length": 1024, "output_length": 8, "hash_ids": [6, 7]}
{"timestamp": 150, "input_length": 2100, "output_length": 1, "hash_ids": [6, 7, 8, 9, 10]}
`

// TestReplay replays a trace against llama-server one request at a time, and then several at a time, and exports what
// was recorded: it is the trace, twice, but for times and the request that fits into no slot.
func TestReplay(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "2", "-c", "4096", "-t", "1", "--no-webui", "--override-kv",
		"llama.context_length=int:2048")
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(replayed), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := kvcache.ReadTrace(strings.NewReader(replayed), kvcache.TraceBlock, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []bench.ReplayRow
	for _, flags := range [][]string{{"--concurrency", "1"}, {"--concurrency", "3", "--speed", "10"}} {
		file := filepath.Join(dir, "rows.jsonl")
		r := llamatap(t, append([]string{"bench", "--trace", trace, "--url", s.url, "--results", file, "--json"},
			flags...)...).good(t)
		rows := replayRows(t, file)
		if len(rows) != len(want) {
			t.Fatalf("%d rows of %d requests", len(rows), len(want))
		}
		wantReport(t, r.stdout, rows)
		all = append(all, rows...)
	}
	records := s.recordedRequests(t)
	out := filepath.Join(dir, "again.jsonl")
	llamatap(t, "export", runDirs(t, s.out)[0], "--to", "mooncake", "-o", out).good(t)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := kvcache.ReadTrace(bytes.NewReader(text), kvcache.TraceBlock, 100)
	if err != nil {
		t.Fatal(err)
	}
	want = want[:len(want)-1]
	if len(got) != 2*len(want) || len(records) != len(got) {
		t.Fatalf("%d requests in the export, %d records, want %d\n%s", len(got), len(records), 2*len(want), text)
	}
	wantTrace(t, got[:len(want)], want)
	// which of those under way at the same time arrived first is the machine's choice
	at := func(r kvcache.TraceRequest) int {
		return slices.IndexFunc(want, func(w kvcache.TraceRequest) bool { return w.Output == r.Output })
	}
	second := got[len(want):]
	slices.SortFunc(second, func(a, b kvcache.TraceRequest) int { return at(a) - at(b) })
	wantTrace(t, got, slices.Concat(want, want))
	for i := range want { // a request arrived after it was sent and before its first token was received
		first, row := &all[0], &all[i]
		late, early := row.SentMS+*row.FirstMS-first.SentMS, row.SentMS-first.SentMS-*first.FirstMS
		if ms := got[i].TimeMS; ms > late+1 || ms < early-1 {
			t.Errorf("request %d arrived %v ms after the first one, want %.3f to %.3f", i, ms, early, late)
		}
		q := &records[i]
		if ttft := float64(q.FirstNS-q.ArrivalNS) / 1e6; q.ArrivalNS == 0 || ttft > *row.FirstMS {
			t.Errorf("request %d: first token %v ms after its arrival, the client had it after %v", i, ttft,
				*row.FirstMS)
		}
		if q.Cached != *row.Cached || q.Computed != *row.Computed || q.Output != *row.Chosen ||
			q.End != kvcache.EndLength {
			t.Errorf("request %d: record %+v, row %+v", i, *q, *row)
		}
	}
}

// wantTrace compares lengths, and hash ids as they are: both count up from 0 in the order of the requests.
func wantTrace(t *testing.T, got, want []kvcache.TraceRequest) {
	t.Helper()
	for i := range want {
		if g, w := got[i], want[i]; g.Input != w.Input || g.Output != w.Output || !slices.Equal(g.IDs, w.IDs) {
			t.Errorf("request %d: %d tokens, %d out, %d; want %d, %d, %d", i, g.Input, g.Output, g.IDs, w.Input,
				w.Output, w.IDs)
		}
	}
}

// replayRows reads the rows of a replay, by their places in the trace.
func replayRows(t *testing.T, file string) (rows []bench.ReplayRow) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var row bench.ReplayRow
		if err := in.Decode(&row); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b bench.ReplayRow) int { return a.Index - b.Index })
	return rows
}

// wantReport computes what a report says from the rows.
func wantReport(t *testing.T, text string, rows []bench.ReplayRow) {
	t.Helper()
	var got bench.ReplayReport
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := bench.ReplayReport{URL: got.URL, Speed: got.Speed, Concurrency: got.Concurrency, Requests: len(rows),
		Sent: len(rows), Errors: map[string]int64{"too_long": 1}, WallSeconds: got.WallSeconds}
	var took []float64
	for i, row := range rows {
		if row.LateMS != row.SentMS-row.DueMS || row.LateMS < 0 || row.Cause != "" && i != len(rows)-1 {
			t.Errorf("%+v", row)
		}
		if row.Cause != "" {
			continue
		}
		took = append(took, *row.TookMS)
		if *row.Cached+*row.Computed != row.Input || *row.Chosen != row.Output || *row.FirstMS > *row.TookMS {
			t.Errorf("%+v", row)
		}
		want.Answered++
		want.Input, want.Cached, want.Output = want.Input+row.Input, want.Cached+*row.Cached, want.Output+*row.Chosen
	}
	want.Shared = 1100 + 1024 + 512 + 512 // of requests 1 to 4 of the trace
	want.InputRate, want.OutputRate = float64(want.Input)/want.WallSeconds, float64(want.Output)/want.WallSeconds
	slices.Sort(took)
	if n := len(took); n != 7 || got.Latency.P50-took[3] > 1e-5 || took[3]-got.Latency.P50 > 1e-5 ||
		took[6]-got.Latency.Max > 1e-5 || got.TTFT == nil || got.PerToken == nil || got.Late == nil {
		t.Errorf("latencies %v are reported as %+v", took, *got.Latency)
	}
	got.Latency, got.TTFT, got.PerToken, got.Late = nil, nil, nil, nil
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("report %+v, want %+v", got, want)
	}
	if want.Cached < 2*512 {
		t.Errorf("%d tokens were cached: the prompts share nothing", want.Cached)
	}
}

// TestPromptsOfTokens asks with token ids in place of a text: one prompt, several, with cache_prompt behind a long one,
// in chunks of a byte, and within texts, which are no such prompts.
func TestPromptsOfTokens(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "2048", "-b", "2048", "-t", "1", "--no-webui",
		"--override-kv", "llama.context_length=int:2048")
	text := `,"n_predict":2,"ignore_eos":true}`
	ids := strings.Repeat("7,          ", 1499) + "7" // more than is received at once
	bodies := []io.Reader{iotest.OneByteReader(strings.NewReader(`{"prompt":[700,701,702]` + text))}
	for _, body := range []string{
		`{"prompt": [ 500,501 , 502]` + text, `{"prompt":[[600,601],[602]]` + text,
		`{"prompt":[` + ids + `],"cache_prompt":false` + text, `{"prompt":[` + ids + `],"cache_prompt" : false` + text,
		`{"prompt":[500,"func",502]` + text, `{"prompt":"\"prompt\":[1,2]"` + text,
	} {
		bodies = append(bodies, strings.NewReader(body))
	}
	for i, body := range bodies {
		response, err := http.Post(s.url+"/completion", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		if said, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s", i, said)
		}
		response.Body.Close()
	}
	records := s.recordedRequests(t)
	if len(records) != 8 {
		t.Fatalf("%d records", len(records))
	}
	for i, q := range records {
		arrived := i != 6 // of texts and ids in one prompt
		if (q.ArrivalNS != 0) != arrived || (q.End == kvcache.EndLength) != arrived || q.Output != 2 {
			t.Errorf("request %d: %+v", i, q)
		}
		if off := i == 5; (q.Cause == kvcache.CauseOff) != off || off && q.Again != 1499 {
			t.Errorf("request %d: %s, %d tokens", i, kvcache.CauseName(q.Cause), q.Again)
		}
	}
	if a, b := records[2], records[3]; a.ArrivalNS != b.ArrivalNS || a.Prompt+b.Prompt != 3 {
		t.Errorf("two prompts of a request: %+v, %+v", a, b)
	}
}

// TestPromptsThatWait: of a list of prompts that one stream answers each is joined to it, also those that wait for the
// slot while others end. What a request has tokenized besides its prompts does not wait for a slot.
func TestPromptsThatWait(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "2048", "-t", "1", "--no-webui", "--context-shift")
	takesCommands(t, s.out)
	seen := func(what string, is func(now *kvcache.RequestsNow) bool) {
		testenv.Until(t, what, func() bool {
			now := ctl(t, s.out, "status").Status.Requests
			return is(&now)
		})
	}
	alone := func() {
		seen("a request runs and none waits", func(now *kvcache.RequestsNow) bool {
			return now.Running == 1 && now.Waiting == 0
		})
	}
	for _, q := range []question{
		{prompt: "func main", options: map[string]any{"logit_bias": []any{[]any{"func", -1}, []any{"var x", -1}}}},
		{options: map[string]any{"prompt": []any{"func", 12, " x", 13, " y"}}},
	} {
		q.slot, q.n, q.options["stream"] = -1, 1_000_000, true // until we go
		s.hearSome(t, q, 2, alone)
	}
	prompts := []string{"func one", "func two three", "type four five six"}
	q := question{slot: -1, n: 500, options: map[string]any{"prompt": prompts, "stream": true}}
	body, err := json.Marshal(q.body())
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(s.url+"/completion", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	seen("prompts of a list wait", func(now *kvcache.RequestsNow) bool { return now.Running == 1 && now.Waiting > 0 })
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	seen("nothing is left", func(now *kvcache.RequestsNow) bool { return now.Running == 0 && now.Waiting == 0 })
	records := s.recordedRequests(t)
	if len(records) != 2+len(prompts) {
		t.Fatalf("%d records", len(records))
	}
	for _, r := range records[2:] {
		if r.ArrivalNS == 0 || r.ArrivalNS != records[2].ArrivalNS || r.End != kvcache.EndLength || r.Output != 500 {
			t.Errorf("a prompt of the list: %+v", r)
		}
	}
}

// TestMessageStreams: a stream of /v1/messages names model and id in its first piece, and why it ended in a later one.
func TestMessageStreams(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "512", "-t", "1", "--no-webui", "--chat-template",
		"chatml")
	// llama-server closes a connection behind a stream, and may do so after the next request was sent.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var ids []string
	for _, stream := range []bool{true, false, true} {
		body := fmt.Sprintf(`{"model":"asked","max_tokens":5,"ignore_eos":true,"stream":%t,`+
			`"messages":[{"role":"user","content":"func %d"}]}`, stream, len(ids))
		response, err := client.Post(s.url+"/v1/messages", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		id := regexp.MustCompile(`"id":"([^"]+)"`).FindSubmatch(text)
		if response.Body.Close(); err != nil || response.StatusCode != http.StatusOK || id == nil {
			t.Fatalf("%v: %s", err, text)
		}
		ids = append(ids, string(id[1]))
	}
	records := s.recordedRequests(t)
	if len(records) != len(ids) {
		t.Fatalf("%d records of %d requests", len(records), len(ids))
	}
	for i, q := range records {
		if said := &q.Said; said.AnswerID != ids[i] || said.AnswerModel == "" || said.Path != "/v1/messages" ||
			q.End != kvcache.EndLength && q.End != kvcache.EndStop { // the model may end after a token
			t.Errorf("%+v, answered %s", q, ids[i])
		}
	}
}
