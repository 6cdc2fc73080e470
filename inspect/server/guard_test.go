//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const token = "0123456789abcdef"

func TestToken(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t), Token: token})
	for given, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer 0123456789abcdeF": 401, "Bearer " + token[:15]: 401, "Bearer " +
			token + "x": 401, token: 401, "Basic " + token: 401,
		"Bearer " + token: 200, "bearer " + token: 200,
	} {
		for _, path := range []string{"/api/v1/runs", "/metrics", "/"} {
			w := request(s, path, "Authorization", given, "Host", "runs.example.org")
			if w.Code != want || want == 401 && (failed(t, w) == "" || w.Header().Get("WWW-Authenticate") == "") {
				t.Errorf("%q for %s: %d", given, path, w.Code)
			}
		}
	}
	if w := request(s, "/nothing"); w.Code != 401 {
		t.Errorf("what there is can be found out without a token: %d", w.Code)
	}
}

// TestHostName keeps a page whose name was made to lead here from reading.
func TestHostName(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t)})
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost": 200, "[::1]:80": 200, "127.9.9.9": 200, "box:1": 403,
		"evil.example.org": 403, "": 403, "127.0.0.1.evil.org": 403,
		"10.0.0.1": 403, "localhost.evil.org:8080": 403, "[::1": 403,
	} {
		if w := request(s, "/api/v1/runs", "Host", host); w.Code != want {
			t.Errorf("%q: %d", host, w.Code)
		}
	}
	if w := request(s, `PUT /api/v1/level {"level":"off"}`, "Origin", "http://evil.example.org"); w.Code != 403 ||
		failed(t, w) == "" {
		t.Errorf("a page of another site: %d", w.Code)
	}
}

// TestNoTokenNoServer: a server that nobody said may do without a token is not made.
func TestNoTokenNoServer(t *testing.T) {
	if _, err := New(Options{Dir: folder(t)}); err == nil {
		t.Error("a server without a token was made")
	}
	for given, good := range map[string]bool{"": false, "short": false, token: true, NewToken(): true} {
		if err := CheckToken(given); (err == nil) != good {
			t.Errorf("%q: %v", given, err)
		}
	}
	if one, another := NewToken(), NewToken(); one == another {
		t.Error("two tokens are equal")
	}
}

// TestTokenFile: clients of the same user find the token by the server's address, and nobody else can read it.
func TestTokenFile(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_STATE_HOME", state)
	for addr, asked := range map[string][]string{
		"127.0.0.1:8080": {"127.0.0.1:8080", "localhost:8080"}, "[::]:81": {"127.0.0.1:81", "box:81", "[::1]:81"},
		"unix:/tmp/x/s.sock": {"unix:/tmp/x/../x/s.sock"},
	} {
		given := NewToken()
		path, remove, err := SaveToken(addr, given)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(path, state) {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		for _, a := range asked {
			if got, err := readToken(a); got != given || err != nil {
				t.Errorf("%s as %s: %q, %v", addr, a, got, err)
			}
		}
		remove()
		if got, err := readToken(asked[0]); err == nil {
			t.Errorf("%s after the end: %q", addr, got)
		}
	}
	_, remove, _ := SaveToken("127.0.0.1:80", NewToken())
	next, _, err := SaveToken("127.0.0.1:80", token)
	if remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(next); err != nil {
		t.Errorf("the file of the next server at the address was removed: %v", err)
	}
	os.Chmod(filepath.Dir(next), 0o777)
	if _, _, err := SaveToken("127.0.0.1:82", token); err == nil {
		t.Error("a folder that others can write to was used")
	}
}

// TestPage: a browser gets the page that takes the token out of its link, and nothing of runs without it.
func TestPage(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t), Token: token})
	w := request(s, "/", "Accept", "text/html,*/*")
	if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, "sessionStorage") ||
		strings.Contains(text, "run_") {
		t.Errorf("%d, %.200s", w.Code, text)
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'sha256-") ||
		!strings.Contains(policy, "style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	for _, path := range []string{"/metrics", "/api/v1/runs"} {
		if w := request(s, path, "Accept", "text/html"); w.Code != 401 || failed(t, w) == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := request(s, "/", "Authorization", "Bearer "+token); w.Code != 200 ||
		strings.Contains(w.Body.String(), "{$}") || !strings.Contains(w.Body.String(), "GET /metrics") {
		t.Errorf("index: %d, %q", w.Code, w.Body)
	}
}

// TestUnixSocket: its user alone may connect, a socket that was left behind is replaced, and one that is served is not.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a socket that is served was replaced")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	lockedRun(t, dir)
	said := ""
	s := newServer(t, Options{Dir: dir, Control: func(_ string, c Command) (json.RawMessage, error) {
		said = c.Command + c.Level
		return json.RawMessage(`{"run":"x"}`), nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, second) }()
	if answer, err := Ask(ctx, "unix:"+path, Command{Command: "level", Level: "VERBOSE"}); err != nil ||
		said != "levelVERBOSE" || !strings.Contains(string(answer), "x") {
		t.Errorf("%s, %v, the run got %q", answer, err, said)
	}
	if answer, err := Ask(ctx, "unix:"+path, Command{Command: "status"}); err != nil || said != "status" {
		t.Errorf("%s, %v, the run got %q", answer, err, said)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHostileRequests gets an error of one line for each, with the status that belongs to it.
func TestHostileRequests(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t)})
	for line, want := range map[string]int{
		"/api/v1/resource-logs?run=../secret": 404, "/api/v1/resource-logs?run=..%2f..%2fetc%2fpasswd": 404,
		"/logs/..%2f..%2fsecret": 404, "/logs/%2e%2e": 404,
		"/logs/" + sealedRun + "%2f..": 404, "/logs/run_%00": 400, "/logs/" + strings.Repeat("x", 5000): 404,
		"/logs/": 404, "//": 404, "/logs//x": 404, "/./sessions": 404,
		"/api/v1/../v1/runs": 404, "/nothing": 404, "/API/V1/runs": 404, "/logs/x/stream/y": 404,
		"/api/v1/resource-logs?run=a&run=b": 400, "/api/v1/resource-logs?from_line=-1": 400,
		"/api/v1/resource-logs?from_line=1e3":                  400,
		"/api/v1/resource-logs?from_line=99999999999999999999": 400, "/api/v1/resource-logs?folow": 400,
		"/api/v1/resource-logs?follow=perhaps": 400,
		"/api/v1/resource-logs?event=bogus":    400, "/api/v1/resource-logs?layer=-2": 400,
		"/api/v1/resource-logs?layer=x": 400, "/api/v1/resource-logs?a=%zz": 400,
		"/api/v1/resource-logs?a;b": 400, "/sessions?x=1": 400, "/api/v1/runs?run=x": 400,
		"/api/v1/summary?run=none": 404, "/api/v1/kv?x": 400,
		"/api/v1/resource-logs?run=" + emptyRun: 404, "/logs/" + emptyRun: 404,
		"DELETE /api/v1/runs": 405, "POST /api/v1/level {}": 405, "PUT /sessions {}": 405, "TRACE /": 405,
		"PUT /metrics {}": 405, "OPTIONS /api/v1/level": 405,
		"GET /sessions body": 400, "GET /log-monitoring": 405,
	} {
		w := request(s, line)
		if text := failed(t, w); w.Code != want || strings.Contains(text, "secret\n") {
			t.Errorf("%.60s: %d, want %d: %s", line, w.Code, want, text)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%.60s: headers %v", line, w.Header())
		}
	}
}

// listen serves on a free port until the test ends, and returns its address.
func listen(t *testing.T, s *Server) (addr string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { stop() })
	return l.Addr().String(), stop
}

// raw sends bytes as they are and returns the first answer.
func raw(t *testing.T, addr, text string) (*http.Response, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

// TestRawRequests sends what no client would: the server answers with an error, or hangs up, and goes on.
func TestRawRequests(t *testing.T) {
	addr, _ := listen(t, newServer(t, Options{Dir: folder(t), Limits: Limits{ReadTime: 200 * time.Millisecond}}))
	head := " HTTP/1.1\r\nHost: localhost\r\n"
	for text, want := range map[string]int{
		"GET /sessions" + head + "Big: " + strings.Repeat("x", 64<<10) + "\r\n\r\n":                          431,
		"GET /sessions HTTP/1.1\r\n\r\n":                                                                     400,
		"\x16\x03\x01\x00\xa5\x01\x00\n\n":                                                                   400,
		"PUT /api/v1/level" + head + "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n": 413,
		// and nothing more
		"PUT /api/v1/level" + head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"level\":": 400,
		"GET /sessions" + head + "Content-Length: 5\r\n\r\nhello":                                               400,
		"GET /sessions" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":                    400,
		"GET /../../secret" + head + "\r\n":                                                                     404,
		"GET http://evil.example.org/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n":                              403,
		"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n":                                              400,
	} {
		answer, err := raw(t, addr, text)
		if err != nil {
			t.Errorf("%.60q: %v", text, err)
			continue
		}
		if answer.StatusCode != want {
			t.Errorf("%.60q: %d, want %d", text, answer.StatusCode, want)
		}
		answer.Body.Close()
	}
	if answer, err := raw(t, addr, "GET /sess"); err == nil && answer.StatusCode < 400 { // half a header, then nothing
		t.Errorf("half a header was answered with %d", answer.StatusCode)
	}
	answer, err := raw(t, addr, "GET /healthz"+head+"\r\n")
	if err != nil || answer.StatusCode != 200 {
		t.Errorf("afterwards: %v", err)
	}
}

// talk asks on a connection of its own, which stays open, and returns the status.
func talk(t *testing.T, addr, path, authorization string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, authorization)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusServiceUnavailable {
		var body map[string]string
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil ||
			!strings.Contains(body["error"], "too many connections") {
			t.Errorf("%v, %v", body, err)
		}
	}
	return conn, answer.StatusCode
}

// TestConnectionLimit: of clients with the token one too many gets an error, and comes in when there is room again.
func TestConnectionLimit(t *testing.T) {
	addr, _ := listen(t, newServer(t, Options{Dir: folder(t), Token: token, Limits: Limits{Connections: 2}}))
	var held []net.Conn
	for range 2 {
		conn, status := talk(t, addr, "/sessions", token)
		if status != 200 {
			t.Fatal(status)
		}
		held = append(held, conn)
	}
	if _, status := talk(t, addr, "/sessions", token); status != 503 {
		t.Fatalf("one more: %d", status)
	}
	held[0].Close()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, status := talk(t, addr, "/sessions", token); status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there is room, and nobody comes in")
		}
	}
}

// TestStrangersLockNobodyOut: connections without the token, idle or not, keep nobody out who has it, and cut
// nobody who came in.
func TestStrangersLockNobodyOut(t *testing.T) {
	addr, _ := listen(t, newServer(t, Options{Dir: folder(t), Token: token,
		Limits: Limits{Connections: 4, ReadTime: time.Hour}}))
	inside, status := talk(t, addr, "/sessions", token)
	if status != 200 {
		t.Fatal(status)
	}
	var idle []net.Conn
	for range 64 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
		if _, status := talk(t, addr, "/sessions", "wrong"); status != 401 {
			t.Fatalf("a wrong token: %d", status)
		}
	}
	if _, status := talk(t, addr, "/sessions", token); status != 200 {
		t.Errorf("locked out: %d", status)
	}
	fmt.Fprintf(inside, "GET /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
	if answer, err := http.ReadResponse(bufio.NewReader(inside), nil); err != nil || answer.StatusCode != 200 {
		t.Errorf("who was inside: %v", err)
	}
	idle[0].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the oldest stranger was kept: %v", err)
	}
}

// TestCrowdedHost: the host with the most connections loses one, not another that has few.
func TestCrowdedHost(t *testing.T) {
	all := &connections{limit: 4}
	for i, host := range []string{"a", "b", "b", "b"} {
		if c := all.add(&connection{all: all, host: host}); c != nil {
			t.Fatalf("%d: %s must go", i, c.host)
		}
	}
	for range 2 {
		if c := all.add(&connection{all: all, host: "c"}); c == nil || c.host != "b" {
			t.Fatalf("%+v must go", c)
		}
	}
}

// FuzzRequest asks for whatever: every answer is one that a route gives, or an error of one line, and nothing of
// the file beside the runs is reported.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{"/api/v1/resource-logs?run=../secret", "/logs/%2e%2e%2fsecret", "/logs/" + sealedRun +
		"/stream?from_line=1", "/metrics", "/sessions", "/api/v1/level",
		"/api/v1/kv?run=" + sealedRun, "//secret", "/logs/..\\secret", "/api/v1/summary?run=.", "/log-monitoring"} {
		for _, method := range []string{"GET", "PUT", "POST", "HEAD"} {
			f.Add(method, path, "127.0.0.1", `{"level":"VERBOSE"}`, "Bearer x")
		}
	}
	dir := folder(f)
	open := newServer(f, Options{Dir: dir, Control: func(string, Command) (json.RawMessage, error) {
		return json.RawMessage("{}"), nil
	},
		Generate: func(_ context.Context, _ Prompt, began func(string)) (json.RawMessage, error) {
			began("run_x")
			return json.RawMessage("{}"), nil
		}})
	closed := newServer(f, Options{Dir: dir, Token: token})
	f.Fuzz(func(t *testing.T, method, target, host, body, authorization string) {
		line := method + " " + target + " HTTP/1.1\r\nHost: " + host +
			"\r\nContent-Type: application/json\r\nAuthorization: " + authorization + "\r\n"
		if method != "GET" && method != "HEAD" {
			line += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		} else {
			line += "\r\n"
		}
		for _, h := range []http.Handler{open, closed} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line)))
			if err != nil {
				return
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if strings.Contains(w.Body.String(), "secret\n") || h == closed && w.Code < 400 &&
				r.URL.Path != "/healthz" && !strings.Contains(authorization, token) {
				t.Fatalf("%q: %d %q", line, w.Code, w.Body)
			}
			if w.Code >= 400 && r.Method != "HEAD" {
				failed(t, w)
			}
		}
	})
}
