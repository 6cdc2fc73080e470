//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// post sends a prompt to a server.
func post(t *testing.T, ctx context.Context, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// TestStreamGeneration: a client gets the session, events while they are recorded, and the result.
func TestStreamGeneration(t *testing.T) {
	dir, more := t.TempDir(), make(chan struct{})
	s := newServer(t, Options{Dir: dir, Generate: func(ctx context.Context, p Prompt,
		began func(string)) (json.RawMessage, error) {
		d, err := rundir.Create(dir, "m", time.Now())
		if err != nil {
			return nil, err
		}
		log, err := d.Create("resource.jsonl")
		if err != nil {
			return nil, err
		}
		began(d.Path())
		for i := range 3 {
			<-more
			fmt.Fprintf(log, `{"event":"output_token","token_text":"t%d"}`+"\n"+`{"event":"phase"}`+"\n", i)
		}
		<-more
		if err := log.Close(); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"text":"all"}`), d.Seal()
	}})
	web := httptest.NewServer(s)
	defer web.Close()
	answer := post(t, context.Background(), web.URL+"/log-monitoring?event=output_token",
		`{"prompt":"a","stream":true}`)
	lines := bufio.NewReader(answer.Body)
	expect := func(want string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("%q, %v; want %s", line, err, want)
		}
	}
	expect(`"status":"running"`)
	for i := range 3 {
		more <- struct{}{}
		expect(fmt.Sprintf(`"token_text":"t%d"`, i)) // before there is another
	}
	more <- struct{}{}
	expect(`"result":{"text":"all"}`)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil ||
		!strings.HasPrefix(answer.Header.Get(runHeader), "run_") {
		t.Errorf("%q, %v, %v", rest, err, answer.Header)
	}
}

// TestGenerationBounds: one prompt at a time; one ends with its client, with its time, and with the server.
func TestGenerationBounds(t *testing.T) {
	begun, gone := make(chan struct{}), make(chan struct{})
	o := Options{Dir: t.TempDir(), Generate: func(ctx context.Context, p Prompt, _ func(string)) (json.RawMessage,
		error) {
		begun <- struct{}{}
		<-ctx.Done()
		gone <- struct{}{}
		return nil, ctx.Err()
	}}
	web := httptest.NewServer(newServer(t, o))
	defer web.Close()
	for _, body := range []string{`{"prompt":"a"}`, `{"prompt":"a","stream":true}`} {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			for ctx.Err() == nil { // the one before may hold its place for a moment after it has ended
				r, _ := http.NewRequestWithContext(ctx, "POST", web.URL+"/log-monitoring", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				if answer, err := http.DefaultClient.Do(r); err == nil {
					answer.Body.Close()
				}
			}
		}()
		<-begun
		if second := post(t, context.Background(), web.URL+"/log-monitoring",
			`{"prompt":"b"}`); second.StatusCode != 503 || second.Header.Get("Retry-After") == "" {
			t.Errorf("a second one at a time: %v", second.Status)
		}
		cancel()
		<-gone
	}
	o.Limits.Generation = time.Millisecond
	go func() { <-begun; <-gone }()
	short := httptest.NewServer(newServer(t, o))
	defer short.Close()
	if late := post(t, context.Background(), short.URL+"/log-monitoring", `{"prompt":"a"}`); late.StatusCode != 500 {
		t.Errorf("out of time: %v", late.Status)
	}
	o.Limits.Generation = 0
	s := newServer(t, o)
	stopped := httptest.NewServer(s)
	defer stopped.Close()
	go func() { <-begun; close(s.stopping); <-gone }()
	if ended := post(t, context.Background(), stopped.URL+"/log-monitoring",
		`{"prompt":"a"}`); ended.StatusCode != 500 {
		t.Errorf("the server stops: %v", ended.Status)
	}
}

// TestOrigins: a page of a configured origin may ask, with the token; one of another may not.
func TestOrigins(t *testing.T) {
	const mine, other = "http://localhost:3000", "http://localhost:3001"
	s := newServer(t, Options{Dir: folder(t), Token: token, Origins: []string{mine}})
	preflight := func(origin string) *httptest.ResponseRecorder {
		return request(s, "OPTIONS /log-monitoring", "Origin", origin, "Access-Control-Request-Method", "POST")
	}
	w := preflight(mine)
	if h := w.Header(); w.Code != 204 || h.Get("Access-Control-Allow-Origin") != mine ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") ||
		!strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") || h.Get("Vary") != "Origin" {
		t.Errorf("%d %v", w.Code, h)
	}
	if w := preflight(other); w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: %d %v", w.Code, w.Header())
	}
	for _, c := range []struct {
		origin, token string
		want          int
		allowed       string
	}{{mine, token, 501, mine}, {mine, "", 401, mine}, {other, token, 403, ""}} {
		w := request(s, `POST /log-monitoring {"prompt":"a"}`, "Origin", c.origin, "Authorization", "Bearer "+c.token,
			"Sec-Fetch-Site", "cross-site")
		if w.Code != c.want || w.Header().Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("%+v: %d %v", c, w.Code, w.Header())
		}
	}
	for _, origin := range []string{"*", "null", "localhost:3000", "http://a/b", "http://a/", "ftp://a", "https://u@a",
		"http://", "HTTP://A B"} {
		if err := CheckOrigin(origin); err == nil {
			t.Errorf("%q is taken for an origin", origin)
		}
	}
}
