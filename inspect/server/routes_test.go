//go:build linux

package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%v: %.200q", err, text)
	}
}

func TestResourceLogs(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t)})
	lines := strings.SplitAfter(strings.TrimSuffix(log7, "\n"), "\n")
	for query, want := range map[string]string{
		"":                                  log7,
		"&from_line=5":                      lines[5] + lines[6] + "\n",
		"&from_line=7":                      "",
		"&from_line=700":                    "",
		"&event=loss,level":                 lines[6] + "\n",
		"&event=loss&event=level":           lines[6] + "\n",
		"&layer=1":                          lines[2],
		"&layer=0&event=kv_cache_operation": lines[3],
		"&layer=none":                       "",
		"&follow":                           log7, // it is sealed: the answer ends
	} {
		w := request(s, "/api/v1/resource-logs?run="+sealedRun+query)
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s: %d %q", query, w.Code, w.Body.String())
		}
		if trailer := w.Result().Trailer; trailer.Get(nextLineHeader) != "7" || trailer.Get(badLinesHeader) != "0" {
			t.Errorf("%s: trailers %v", query, trailer)
		}
	}
	w := request(s, "/api/v1/resource-logs") // the newest with events; its last line has no end
	if got := w.Body.String(); got != lines[0] || w.Header().Get(runHeader) != openRun {
		t.Errorf("of the newest: %q of %s", got, w.Header().Get(runHeader))
	}
	if w := request(s, "HEAD /api/v1/resource-logs?follow"); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d, %q", w.Code, w.Body.String())
	}
}

// TestBadLines leaves out what is no JSON, and counts it.
func TestBadLines(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "resource.jsonl"),
		"rubbish\n{\"event\":\"loss\"\n\n[]\n{\"event\":\"loss\",\"layer_id\":\"x\"}\n")
	s := newServer(t, Options{Dir: dir})
	for query, want := range map[string]string{"": "4", "?layer=1": "5"} {
		w := request(s, "/api/v1/resource-logs"+query)
		if bad := w.Result().Trailer.Get(badLinesHeader); bad != want {
			t.Errorf("%s: %s bad lines, %q", query, bad, w.Body.String())
		}
	}
}

func TestRoutesOfB(t *testing.T) {
	dir := folder(t)
	s := newServer(t, Options{Dir: dir})
	var sessions struct {
		Active []struct {
			ID   string `json:"session_id"`
			Path string `json:"log_file_path"`
		} `json:"active_sessions"`
	}
	decode(t, request(s, "/sessions").Body.Bytes(), &sessions)
	if len(sessions.Active) != 2 || sessions.Active[1].ID != sealedRun ||
		sessions.Active[1].Path != filepath.Join(dir, "m", sealedRun, "resource.jsonl") {
		t.Errorf("%+v", sessions)
	}
	var absPath struct {
		ID   string `json:"session_id"`
		Logs []byte `json:"logs_b64"`
	}
	decode(t, request(s, "/logs/"+sealedRun).Body.Bytes(), &absPath)
	if absPath.ID != sealedRun || string(absPath.Logs) != log7 {
		t.Errorf("%s: %q", absPath.ID, absPath.Logs)
	}
	var lines struct {
		ID    string   `json:"session_id"`
		From  int      `json:"from_line"`
		New   []string `json:"new_lines_b64"`
		Total int      `json:"total_lines"`
	}
	decode(t, request(s, "/logs/"+sealedRun+"/stream?from_line=6").Body.Bytes(), &lines)
	last, _ := base64.StdEncoding.DecodeString(lines.New[0])
	if lines.ID != sealedRun || lines.From != 6 || len(lines.New) != 1 || !strings.Contains(string(last), `"loss"`) ||
		lines.Total != 7 {
		t.Errorf("%+v", lines)
	}
	lines.New = nil
	decode(t, request(s, "/logs/"+sealedRun+"/stream?from_line=7").Body.Bytes(), &lines)
	if lines.New == nil || len(lines.New) != 0 {
		t.Errorf("%+v", lines)
	}
	var health struct {
		Status string `json:"status"`
		Loaded *bool  `json:"model_loaded"`
	}
	decode(t, request(s, "/health").Body.Bytes(), &health)
	if health.Status != "ok" || health.Loaded == nil || *health.Loaded {
		t.Errorf("%+v", health)
	}
	if w := request(s, `POST /log-monitoring {"prompt":"a"}`); w.Code != 501 ||
		!strings.Contains(failed(t, w), "cannot run prompts") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestLogMonitoring(t *testing.T) {
	var got Prompt
	s := newServer(t, Options{Dir: folder(t), Generate: func(_ context.Context, p Prompt,
		began func(string)) (json.RawMessage, error) {
		if got = p; p.Prompt == "fail" {
			return nil, errors.New("no model: give one")
		}
		began("runs/m/run_x")
		return json.RawMessage(`{"text":"there"}`), nil
	}})
	w := request(s, `POST /log-monitoring {"prompt":"hi","sampling":{"method":"top_k","top_k":3,"seed":7},"more":1}`)
	var answer struct {
		ID     string `json:"session_id"`
		Path   string `json:"log_file_path"`
		Status string
		Result struct{ Text string }
	}
	decode(t, w.Body.Bytes(), &answer)
	if w.Code != 200 || answer.ID != "run_x" || answer.Path != "runs/m/run_x/resource.jsonl" ||
		answer.Status != "completed" || answer.Result.Text != "there" ||
		*got.Sampling.TopK != 3 || *got.Sampling.Seed != 7 || got.Sampling.TopP != nil {
		t.Errorf("%d %+v %+v", w.Code, answer, got)
	}
	for body, status := range map[string]int{`{"prompt":"fail"}`: 500, `{"prompt":"fail","stream":true}`: 500,
		`{}`: 400, `{`: 400, `{"prompt":1}`: 400, `{"prompt":"a"}{}`: 400,
		`{"prompt":"a","sampling":{"method":"x"}}`: 400, `{"prompt":"a","max_tokens":4097}`: 400,
		`{"prompt":"a","max_tokens":-1}`: 400, `{"prompt":"` + strings.Repeat("x", 2<<20) + `"}`: 413} {
		if w := request(s, "POST /log-monitoring "+body); w.Code != status || failed(t, w) == "" {
			t.Errorf("%.40s: %d", body, w.Code)
		}
	}
	if w := request(s, `POST /log-monitoring {"prompt":"a"}`, "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("as text: %d", w.Code)
	}
}

// TestLevel passes commands on to the run that goes on, and to no other.
func TestLevel(t *testing.T) {
	var sent []Command
	dir := folder(t)
	control := func(dir string, c Command) (json.RawMessage, error) {
		sent = append(sent, c)
		if c.Command == "disable" {
			return nil, errors.New("this run records no resource events: start one with --tap-resource-level MINIMAL")
		}
		return json.RawMessage(`{"run":"x"}`), nil
	}
	s := newServer(t, Options{Dir: dir, Control: control})
	for _, run := range []string{openRun, sealedRun} {
		if w := request(s, `PUT /api/v1/level?run=`+run+` {"level":"VERBOSE"}`); w.Code != 409 ||
			!strings.Contains(failed(t, w), "only a live run") || len(sent) > 0 {
			t.Errorf("%s: %d %s, sent %v", run, w.Code, w.Body, sent)
		}
	}
	going := lockedRun(t, dir)
	for line, want := range map[string]Command{
		`PUT /api/v1/level {"level":"verbose"}`:                   {"level", "VERBOSE"},
		`PUT /api/v1/level {"level":"off"}`:                       {"level", "off"},
		`PUT /api/v1/level {"command":"enable"}`:                  {"enable", ""},
		`PUT /api/v1/level?run=` + going + ` {"command":"flush"}`: {"flush", ""},
		`GET /api/v1/level`:                                       {"status", ""},
		`PUT /api/v1/level {"command":"level","level":"MINIMAL"}`: {"level", "MINIMAL"},
	} {
		sent = nil
		if w := request(s, line); w.Code != 200 || len(sent) != 1 || sent[0] != want ||
			!strings.Contains(w.Body.String(), `"run": "x"`) {
			t.Errorf("%s: %d %s, sent %v", line, w.Code, w.Body, sent)
		}
	}
	sent = nil
	for line, want := range map[string]int{
		`PUT /api/v1/level {"level":"loud"}`: 400, `PUT /api/v1/level {"command":"stop"}`: 400,
		`PUT /api/v1/level {}`: 400, `PUT /api/v1/level {"levl":"x"}`: 400,
		`PUT /api/v1/level {"command":"enable","level":"MINIMAL"}`: 400, `PUT /api/v1/level []`: 400,
		`PUT /api/v1/level?run=none {"level":"MINIMAL"}`: 404,
	} {
		if w := request(s, line); w.Code != want || failed(t, w) == "" || len(sent) > 0 {
			t.Errorf("%s: %d %s, sent %v", line, w.Code, w.Body, sent)
		}
	}
	if w := request(s, `PUT /api/v1/level {"command":"disable"}`); w.Code != 409 ||
		!strings.Contains(failed(t, w), "--tap-resource-level") {
		t.Errorf("refused: %d %s", w.Code, w.Body)
	}
	s = newServer(t, Options{Dir: dir})
	if w := request(s, `PUT /api/v1/level {"level":"off"}`); w.Code != 501 {
		t.Errorf("without a way: %d", w.Code)
	}
}

func TestListing(t *testing.T) {
	dir := folder(t)
	var list struct{ Runs []Run }
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Dir: dir}, emptyRun + " sealed," + openRun + " cut off," + sealedRun + " sealed"},
		{Options{Dir: filepath.Join(dir, "m")}, emptyRun + " sealed," + openRun + " cut off," + sealedRun + " sealed"},
		{Options{Dir: filepath.Join(dir, "m", sealedRun)}, sealedRun + " sealed"},
		{Options{Dir: dir, Live: true}, ""},
	} {
		list.Runs = nil
		decode(t, request(newServer(t, c.o), "/api/v1/runs").Body.Bytes(), &list)
		var got []string
		for _, r := range list.Runs {
			got = append(got, r.ID+" "+string(r.State))
			if r.Model != "m" || r.Events != (r.ID != emptyRun) || r.Events != (r.LogBytes > 0) {
				t.Errorf("%+v", r)
			}
		}
		if strings.Join(got, ",") != c.want {
			t.Errorf("%+v: %v", c.o, got)
		}
	}
	if _, err := New(Options{Dir: filepath.Join(dir, "none"), NoToken: true}); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(dir, "none")) {
		t.Errorf("no folder: %v", err)
	}
	s := newServer(t, Options{Dir: dir, Live: true})
	if w := request(s, "/api/v1/resource-logs"); w.Code != 404 || failed(t, w) == "" {
		t.Errorf("nothing is live: %d", w.Code)
	}
	going := lockedRun(t, dir)
	for range 2 { // while it is live, and when it is sealed
		if w := request(s, "/api/v1/resource-logs"); w.Code != 200 || w.Header().Get(runHeader) != going {
			t.Errorf("live: %d %s", w.Code, w.Body)
		}
		if w := request(s, "/api/v1/resource-logs?run="+sealedRun); w.Code != 404 {
			t.Errorf("another run: %d", w.Code)
		}
		write(t, filepath.Join(dir, "m", going, "manifest.json"), `{"version":1}`)
	}
}

func TestSummaryAndKV(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t)})
	var summary struct {
		Path, State string
		GraphNS     int64 `json:"graph_ns"`
	}
	decode(t, request(s, "/api/v1/summary?run="+sealedRun).Body.Bytes(), &summary)
	if summary.Path != sealedRun || summary.State != "sealed" || summary.GraphNS != 400 {
		t.Errorf("%+v", summary)
	}
	var kv struct {
		Caches []struct {
			Used      int64   `json:"cells_used"`
			Cells     int64   `json:"cells"`
			Occupancy float64 `json:"occupancy"`
		}
	}
	decode(t, request(s, "/api/v1/kv?run="+sealedRun).Body.Bytes(), &kv)
	if len(kv.Caches) != 1 || kv.Caches[0].Used != 4 || kv.Caches[0].Cells != 64 || kv.Caches[0].Occupancy != 0.0625 {
		t.Errorf("%+v", kv)
	}
}

// TestKVNow: of a live run, the collector says how the caches are used, in the answer and as metrics;
// there what was captured, too.
func TestKVNow(t *testing.T) {
	dir := folder(t)
	going := lockedRun(t, dir)
	s := newServer(t, Options{Dir: dir, Control: func(string, Command) (json.RawMessage, error) {
		return json.RawMessage(
			`{"packets":7,"bytes_stored":4096,"packets_lost":3,"losses":{"pool_full":3},"kv":{"caches":[` +
				`{"ctx":2,"cache":"swa","cells":64,"used":10,"free":54,"shared":3,` +
				`"sequences":[{"seq_id":5,"cells":10}]}],` +
				`"reuse":{"needed":20,"reused":5,"hits":1,"gap":{"count":1,"sum_ns":1500,` +
				`"buckets":[` + strings.Repeat("0,", 86) + `1]}},"lifetime":{},"idle":{}}}`), nil
	}})
	var kv struct {
		Run string
		Now struct {
			Caches []struct{ Used int }
		}
	}
	decode(t, request(s, "/api/v1/kv?run="+going).Body.Bytes(), &kv)
	if kv.Run != going || len(kv.Now.Caches) != 1 || kv.Now.Caches[0].Used != 10 {
		t.Errorf("%+v", kv)
	}
	text := request(s, "/metrics").Body.String()
	for _, want := range []string{
		`llamatap_kv_cells{cache="swa",ctx="2",run="` + going + `",state="shared"} 3`,
		`llamatap_kv_sequence_cells{cache="swa",ctx="2",run="` + going + `",seq_id="5"} 10`,
		`llamatap_kv_prompt_cells_reused_total{run="` + going + `"} 5`, `llamatap_kv_reuse_gap_seconds_bucket{run="` +
			going + `",le="9.5367431640625e-07"} 0`,
		`llamatap_kv_reuse_gap_seconds_bucket{run="` + going + `",le="1.9073486328125e-06"} 1`,
		`llamatap_kv_reuse_gap_seconds_count{run="` + going + `"} 1`,
		`llamatap_capture_packets_total{run="` + going + `"} 7`, `llamatap_capture_stored_bytes_total{run="` + going +
			`"} 4096`,
		`llamatap_capture_packets_lost_total{cause="pool_full",run="` + going + `"} 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestHealthz(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t), Token: strings.Repeat("t", minToken)})
	if w := request(s, "/healthz"); w.Code != http.StatusOK ||
		strings.TrimSpace(w.Body.String()) != "{\n  \"status\": \"ok\"\n}" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
