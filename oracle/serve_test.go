//go:build linux

package oracle

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestResourceSummary: what a run's events add up to is what the run did.
func TestResourceSummary(t *testing.T) {
	o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", "VERBOSE", "--tap-kv"},
		generate(12))...).good(t)
	m := metadata(t, o.dirs[0])
	var r resources.Report
	if err := json.Unmarshal([]byte(llamatap(t, "resource", "summary", o.dirs[0], "--json").good(t).stdout),
		&r); err != nil {
		t.Fatal(err)
	}
	if r.State != "sealed" || r.BadLines > 0 || r.Unfinished > 0 || len(r.Losses) > 0 || r.Coverage == nil ||
		*r.Coverage > 1 || *r.Coverage < 0.5 {
		t.Errorf("%s, %d bad lines, losses %v, %v of the time", r.State, r.BadLines, r.Losses, r.Coverage)
	}
	tokens := int64(0)
	for _, p := range r.Phases {
		if use := m.Phases[p.Phase]; p.Phase != resources.PhaseSetup && (use.Graphs != p.Graphs ||
			use.Tokens != p.Tokens) {
			t.Errorf("%+v, metadata: %+v", p, use)
		}
		if p.Phase != resources.PhaseSetup {
			tokens += p.Tokens
		}
	}
	if tokens != m.Tokens.Prompt+m.Tokens.Generated || int64(len(r.Tokens)) != m.Tokens.Generated {
		t.Errorf("%d tokens and %d rows, metadata: %+v", tokens, len(r.Tokens), m.Tokens)
	}
	for i, row := range r.Tokens {
		if row.GraphNS == nil || row.AttentionNS == nil || row.MLPNS == nil ||
			*row.AttentionNS+*row.MLPNS > *row.GraphNS || row.LatencyNS == nil || row.Text == nil {
			t.Errorf("token %d: %+v", i, row)
		}
	}
	layers := map[int]bool{}
	for _, l := range r.Layers {
		layers[l.Layer] = true
	}
	if len(layers) != m.Model.NLayer+1 || !layers[-1] {
		t.Errorf("layers %v of %d", layers, m.Model.NLayer)
	}
	if len(r.Caches) != 1 || r.Caches[0].Used != tokens || r.Caches[0].Layers != m.Model.NLayer ||
		r.Caches[0].Cells < r.Caches[0].Used {
		t.Errorf("caches %+v of %d tokens", r.Caches, tokens)
	}
	for _, by := range resources.Tables {
		table := llamatap(t, "resource", "summary", o.dirs[0], "--format", "csv", "--by", by).good(t).stdout
		lines := strings.Split(strings.TrimSpace(table), "\n")
		if len(lines) < 2 || strings.Count(lines[0], ",") < 10 {
			t.Errorf("by %s: %.200s", by, table)
		}
	}
}

// showing is a server beside a run that goes on.
type showing struct {
	url, token string
	stop       func() error
}

// show starts the server on a free port.
func show(t *testing.T, args ...string) showing {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, _ := bufio.NewReader(said).ReadString('\n')
	_, link, _ := strings.Cut(strings.TrimSpace(line), " is shown at ")
	url, token, ok := strings.Cut(link, "#token=")
	if !ok {
		t.Fatalf("it says %q", line)
	}
	return showing{url, token, func() error { cmd.Process.Signal(os.Interrupt); return cmd.Wait() }}
}

func (s *showing) ask(t *testing.T, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+s.token)
	if body == "" {
		request.Body, request.ContentLength = nil, 0
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s %s: %d, %v, %s", method, path, answer.StatusCode, err, text)
	}
	return string(text)
}

// TestServeLive: a live run is followed line by line, over the rotation of its log, set to another level, and
// exported as metrics; its stream ends when it is sealed.
func TestServeLive(t *testing.T) {
	l := alive(t, "--tap-resource-level", "MINIMAL", "--tap-resource-rotate", "1M", "--tap-memory", "8M",
		"--tap-resource-rate", "2000") // on a busy machine what the commands below wait for would take minutes to read
	defer func() { l.cmd.Process.Signal(syscall.SIGTERM); l.cmd.Wait() }()
	s := show(t, "--live", l.out)
	request, err := http.NewRequest("GET", s.url+
		"/api/v1/resource-logs?follow&event=resource_session_start,output_token,level,resource_session_end", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	follow, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Body.Close()
	lines, last := bufio.NewReader(follow.Body), int64(-1)
	next := func() any { // nil at the end
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		event, failed := resource.Decode(line)
		if err != nil || failed != nil {
			t.Fatalf("%q, %v, %v", line, err, failed)
		}
		if token, ok := event.(*resource.OutputToken); ok {
			if last >= 0 && token.TokenIndex != last+1 {
				t.Fatalf("token %d comes after %d", token.TokenIndex, last)
			}
			last = token.TokenIndex
		}
		return event
	}
	if _, ok := next().(*resource.SessionStart); !ok {
		t.Fatal("the first line is no beginning")
	}
	for i := range 3 {
		if _, ok := next().(*resource.OutputToken); !ok {
			t.Fatalf("line %d is no token", i)
		}
	}
	if !strings.Contains(s.ask(t, "PUT", "/api/v1/level", `{"level":"DETAILED"}`), `"level": "DETAILED"`) {
		t.Error("the run does not say its new level")
	}
	for event := next(); ; event = next() {
		if change, ok := event.(*resource.LevelChange); ok || event == nil {
			if !ok || change.Level != resource.Detailed || change.Previous != resource.Minimal {
				t.Errorf("%+v", event)
			}
			break
		}
	}
	testenv.Until(t, "the log is rotated", func() bool { // after some 16 tokens; their lines are followed below
		_, err := os.Stat(filepath.Join(dirOf(t, l.out), "resource.1.jsonl"))
		return err == nil
	})
	s.ask(t, "PUT", "/api/v1/level", `{"command":"disable"}`) // the log need not grow further
	s.ask(t, "PUT", "/api/v1/level", `{"command":"flush"}`)
	metrics := ""
	testenv.Until(t, "the log is read", func() bool { // a scrape does not wait for it, beside other load
		metrics = s.ask(t, "GET", "/metrics", "")
		return strings.Contains(metrics, `llamatap_tokens_total{phase="decode"`)
	})
	if !strings.Contains(metrics, `state="running"`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	if !strings.Contains(s.ask(t, "GET", "/health", ""), `"model_loaded": true`) {
		t.Error("no model is loaded")
	}
	ctl(t, l.out, "stop")
	var end any
	for event := next(); event != nil; event = next() {
		end = event
	}
	if _, ok := end.(*resource.SessionEnd); !ok {
		t.Errorf("the last line is %T", end)
	}
	if follow.Trailer.Get("Llamatap-Bad-Lines") != "0" {
		t.Errorf("trailers %v", follow.Trailer)
	}
	testenv.Until(t, "the run is sealed", func() bool {
		return strings.Contains(s.ask(t, "GET", "/api/v1/live", ""), `"state":"sealed"`) // ends with the run
	})
	report := s.ask(t, "GET", "/runs/"+filepath.Base(dirOf(t, l.out))+"/report", "")
	if !strings.Contains(report, "</html>") {
		t.Errorf("the report: %.200s", report)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// TestTopOfLiveRun: 'llamatap top' finds a live run by the process that records it, and by its model's; it shows what
// the run generates, and ends with it.
func TestTopOfLiveRun(t *testing.T) {
	// Few events are written, of executions that are all timed: top runs at nice 19, and beside load would read a log
	// of thousands of tokens for minutes.
	l := alive(t, "--tap-resource-level", "DETAILED", "--tap-resource-sample", "1", "--tap-resource-rate", "5",
		"--tap-kv", "--tap-memory", "8M")
	// watch reads what top prints of a process until a snapshot is as it should be.
	watch := func(who int, is func(*resources.Snapshot) bool) *resources.Snapshot {
		t.Helper()
		cmd := command(t, "top", strconv.Itoa(who), "--json", "--interval", "200ms")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		for lines, end := json.NewDecoder(out), time.Now().Add(testenv.Patience()); ; {
			var s resources.Snapshot
			if err := lines.Decode(&s); err != nil || time.Now().After(end) {
				t.Fatalf("%v, the newest snapshot: %+v", err, s)
			}
			if is(&s) {
				return &s
			}
		}
	}
	s := watch(l.cmd.Process.Pid, func(s *resources.Snapshot) bool {
		return len(s.Texts) > 0 && len(s.Components) > 0 && s.PID > 0 && len(s.Caches) > 0 && s.Caches[0].Used > 0
	})
	if s.State != resources.StateRunning || s.Run != filepath.Base(dirOf(t, l.out)) || s.Speed == nil ||
		s.Caches[0].Cells < s.Caches[0].Used || s.Level != "DETAILED" || s.BadLines > 0 {
		t.Errorf("%+v", s)
	}
	for _, m := range s.Missing {
		if strings.Contains(m.How, "--tap-kv") || strings.Contains(m.How, "--tap-resource-level") {
			t.Errorf("%+v is recorded", m)
		}
	}
	if of := watch(s.PID, func(*resources.Snapshot) bool { return true }); of.Run != s.Run {
		t.Errorf("the model's process records %q", of.Run)
	}
	follow := command(t, "top", l.out, "--interval", "100ms")
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, " running, ") {
		t.Errorf("%q, %v", line, err)
	}
	l.cmd.Process.Signal(syscall.SIGTERM)
	rest, err := io.ReadAll(lines)
	l.cmd.Wait()
	if ended := follow.Wait(); err != nil || ended != nil ||
		!strings.Contains(string(rest), "This run is sealed. 'llamatap report ") {
		t.Errorf("%v, %v: %s", err, ended, rest)
	}
}
