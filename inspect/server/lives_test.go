//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
)

// snapshots reads server-sent events until one of a name comes, and returns the last snapshot before it.
func snapshots(t *testing.T, lines *bufio.Reader, until string, is func(*resources.Snapshot) bool) *resources.Snapshot {
	t.Helper()
	for name, last := "", (*resources.Snapshot)(nil); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("before the event %s: %v", until, err)
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case key == "event":
			name = value
		case key == "data" && name == "snapshot":
			last = &resources.Snapshot{}
			if err := json.Unmarshal([]byte(value), last); err != nil {
				t.Fatal(err)
			}
			fallthrough
		case key == "data":
			if name == until && is(last) {
				return last
			}
		}
	}
}

// TestLive follows a run from before its first event to its seal, with two clients, which read its log once.
func TestLive(t *testing.T) {
	g := newGrowing(t, Limits{})
	s := newServer(t, Options{Dir: filepath.Dir(g.Path()), Limits: Limits{LiveTime: 20 * time.Millisecond},
		Control: func(string, Command) (json.RawMessage, error) {
			return json.RawMessage(`{"pid":4711,"level":"VERBOSE"}`), nil
		}})
	addr, _ := listen(t, s)
	var clients []*bufio.Reader
	for range 2 {
		answer, err := http.Get("http://" + addr + "/api/v1/live?run=" + g.ID())
		if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v, %v", answer, err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		clients = append(clients, bufio.NewReader(answer.Body))
	}
	for _, lines := range clients {
		snapshots(t, lines, "snapshot", func(s *resources.Snapshot) bool {
			return s.Run == g.ID() && s.State == resources.StateRunning && s.Lines == 0 && s.PID == 4711
		})
	}
	file := g.part(t, "resource.jsonl")
	fmt.Fprint(file, log7)
	for _, lines := range clients {
		snapshots(t, lines, "snapshot", func(s *resources.Snapshot) bool {
			return s.Lines == 7 && s.Texts[0].Text == "<&\u2028>" && s.Caches[0].Used == 4
		})
	}
	s.lives.mu.Lock()
	if len(s.lives.all) != 1 {
		t.Errorf("%d logs are read", len(s.lives.all))
	}
	s.lives.mu.Unlock()
	if err := errors.Join(file.Close(), g.Seal()); err != nil {
		t.Fatal(err)
	}
	for _, lines := range clients {
		var states []resources.State
		snapshots(t, lines, "end", func(s *resources.Snapshot) bool { states = append(states, s.State); return true })
		if rest, err := io.ReadAll(lines); !slices.Contains(states, resources.StateSealed) ||
			strings.TrimSpace(string(rest)) != "" || err != nil {
			t.Errorf("at the end: %v, then %q, %v", states, rest, err)
		}
	}
	testenv.Until(t, "the log is closed", func() bool {
		s.lives.mu.Lock()
		defer s.lives.mu.Unlock()
		return len(s.lives.all) == 0
	})
}

// TestLiveRefuses: what cannot be followed is answered as everywhere.
func TestLiveRefuses(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t), Limits: Limits{Follows: 1}})
	s.follows <- struct{}{}
	for path, want := range map[string]int{"?run=none": 404, "?run=" + sealedRun: 503, "?x=1": 400} {
		if w := request(s, "/api/v1/live"+path); w.Code != want || failed(t, w) == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	<-s.follows
	if w := request(s, "/api/v1/live?run="+emptyRun); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "--tap-resource-level MINIMAL") {
		t.Errorf("of a run without events: %d %s", w.Code, w.Body)
	}
	if w := request(s, "HEAD /api/v1/live?run="+sealedRun); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
}

// TestReport: a report is served to who has the token, or a link that was made for it, for some time, and its own
// script may run.
func TestReport(t *testing.T) {
	const report = `<!doctype html><script>run()</script><script type="application/json">{}</script>`
	s := newServer(t, Options{Dir: folder(t), Token: token, Report: func(_ context.Context, dir string,
		out io.Writer) error {
		if strings.HasSuffix(dir, emptyRun) {
			return errors.New("nothing: record something")
		}
		_, err := io.WriteString(out, report)
		return err
	}})
	authorized := func(line string) *httptest.ResponseRecorder {
		return request(s, line, "Authorization", "Bearer "+token)
	}
	path := "/runs/" + sealedRun + "/report"
	w := authorized(path)
	if w.Code != 200 || w.Body.String() != report ||
		strings.Count(w.Header().Get("Content-Security-Policy"), "'sha256-") != 2 {
		t.Errorf("%d, %v, %s", w.Code, w.Header(), w.Body)
	}
	var link struct{ Path string }
	decode(t, authorized("POST "+path).Body.Bytes(), &link)
	other := strings.Replace(link.Path, sealedRun, openRun, 1)
	for target, want := range map[string]int{link.Path: 200, path: 401, other: 401, link.Path + "0": 401,
		strings.Replace(link.Path, "key=", "key=9", 1): 401, path + "?key=": 401,
		path + "?key=" + s.links.key(path, time.Now().Unix()-1): 401, "POST " + link.Path: 401,
		"/api/v1/runs" + strings.TrimPrefix(link.Path, path): 401} {
		if w := request(s, target); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
	for target, want := range map[string]int{"/runs/none/report": 404, "POST /runs/none/report": 404,
		"/runs/" + emptyRun + "/report": 500, path + "?x=1": 400} {
		if w := authorized(target); w.Code != want || failed(t, w) == "" {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
	if w := request(newServer(t, Options{Dir: folder(t)}), path); w.Code != 501 {
		t.Errorf("without a way to make reports: %d", w.Code)
	}
}
