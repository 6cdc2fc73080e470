//go:build linux

package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// log is a short log: seven lines, of two layers.
const log7 = `{"event":"resource_session_start","timestamp":"1790000000000000","unix_ns":1790000000000000000,` +
	`"mono_ns":1,"session_id":"s","source":"measured","level":"DETAILED","events_version":1}` + "\n" +
	`{"event":"compute_execution","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","ctx":0,` +
	`"source":"computed","exec":1,"layer_id":0,"component_type":"attention","phase":"decode","node_count":3,` +
	`"time_source":"range","duration_ns":100}` + "\n" +
	`{"event":"compute_execution","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","ctx":0,` +
	`"source":"computed","exec":1,"layer_id":1,"component_type":"mlp","phase":"decode","node_count":3,` +
	`"time_source":"range","duration_ns":200}` + "\n" +
	`{"event":"kv_cache_operation","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","ctx":0,` +
	`"source":"computed","cache_type":"key_value","cache":"base","layer_id":0,"seq_id":0,"cache_start_pos":0,` +
	`"cache_end_pos":4,"exec":1,"cells":4,"key_bytes":64,"value_bytes":64,"key_bytes_written":64,` +
	`"value_bytes_written":64,"cache_hit_ratio":0.25,"cache_operation":"allocate"}` + "\n" +
	`{"event":"output_token","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","ctx":0,"source":"measured",` +
	`"exec":1,"token_index":4,"token_id":9,"token_text":"<&\u2028>","pos":4,"latency_ns":1000000}` + "\n" +
	`{"event":"graph_execution","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","ctx":0,"source":"computed",` +
	`"exec":1,"graph":1,"phase":"decode","tokens":1,"outputs":1,"node_count":6,"reused":false,"status":0,` +
	`"flops":1000,"bytes_read":10,"bytes_written":20,"duration_ns":400,"timed_ns":300,"looking_ns":5,` +
	`"looks":2}` + "\n" +
	`{"event":"loss","timestamp":"1","unix_ns":2,"mono_ns":2,"session_id":"s","source":"measured",` +
	`"kind":"sampling_state","cause":"rate","count":3}` + "\n"

const metadata = `{"version":1,"created":"2026-11-21T00:00:00Z","model":{"name":"m"},` +
	`"contexts":[{"ctx":0,"n_ctx":64}],"losses":[{"cause":"drop","packets":2,"bytes":9}],"lossy":true,` +
	`"account":{"selected":{"packets":9,"bytes":90},"captured":{"packets":7,"bytes":81},` +
	`"lost":[{"cause":"drop","packets":2,"bytes":9}],` +
	`"time":{"tap_ns":1000000,"wait_ns":49000000,"cuts":9,"cut_ns":50000000,"taken_ns":20000000,` +
	`"wall_ns":200000000,"tokens":10},` +
	`"setup":{"tokens":0,"discarded":{"packets":0,"bytes":0},"tap_ns":0,"wait_ns":0}},` + "\n" +
	`"streams":[{"name":"activations.stream","packets":5,"bytes_source":1,"bytes_raw":1,"bytes_stored":77,` +
	`"codec":"none","dtype":"f16"}]}`

const (
	sealedRun = "run_20261121_100000_aaaa"
	openRun   = "run_20261121_110000_bbbb"
	emptyRun  = "run_20261121_120000_cccc"
)

// folder makes a folder of three runs: one sealed, one that is cut off, and one without events.
func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "m", sealedRun, "resource.jsonl"), log7)
	write(t, filepath.Join(dir, "m", sealedRun, "metadata.json"), metadata)
	write(t, filepath.Join(dir, "m", sealedRun, "manifest.json"), `{"version":1}`)
	write(t, filepath.Join(dir, "m", sealedRun, "activations.stream"), "12345")
	write(t, filepath.Join(dir, "m", openRun, ".resource.jsonl.part"), log7[:strings.Index(log7, "\n")+20])
	write(t, filepath.Join(dir, "m", emptyRun, "manifest.json"), `{"version":1}`)
	write(t, filepath.Join(dir, "secret"), "secret")
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	o.NoToken = o.Token == ""
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request asks a handler. The target may have a method before it, and a body after it: "PUT /api/v1/level {}".
func request(h http.Handler, line string, headers ...string) *httptest.ResponseRecorder {
	method, target, body := "GET", line, ""
	if words := strings.SplitN(line, " ", 3); len(words) > 1 {
		method, target = words[0], words[1]
		if len(words) > 2 {
			body = words[2]
		}
	}
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	} else {
		r = httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	r.Host = "127.0.0.1:8080"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// failed is the error of an answer, which must be JSON of one line.
func failed(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body["error"] == "" ||
		strings.Contains(body["error"], "\n") || len(body) != 1 {
		t.Fatalf("status %d, not an error as it should be: %.300q", w.Code, w.Body.String())
	}
	return body["error"]
}

// lockedRun makes a live run, newer than the others, and returns its id.
func lockedRun(t testing.TB, dir string) string {
	t.Helper()
	d, err := rundir.Create(dir, "m", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(d) }) // it holds the lock
	write(t, filepath.Join(d.Path(), ".resource.jsonl.part"), log7)
	return d.ID()
}
