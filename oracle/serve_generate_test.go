//go:build linux

package oracle

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestServeGenerates: POST /log-monitoring generates the text of llamatap run, as one answer and as a stream, and
// leaves a sealed run of it.
func TestServeGenerates(t *testing.T) {
	plain := llamatap(t, "run", "-p", prompt, "-n", "12", "--temp", "0", "--tap-resource-level", "MINIMAL").good(t)
	out := t.TempDir()
	s := show(t, out)
	type session struct {
		ID     string `json:"session_id"`
		Path   string `json:"log_file_path"`
		Status string
		Result struct {
			Text   string
			Tokens []int
		}
	}
	body := func(more string) string {
		text, err := json.Marshal(prompt)
		if err != nil {
			t.Fatal(err)
		}
		return `{"prompt":` + string(text) + `,"max_tokens":12,"sampling":{"method":"greedy"}` + more + `}`
	}
	var one session
	if err := json.Unmarshal([]byte(s.ask(t, "POST", "/log-monitoring", body(""))), &one); err != nil {
		t.Fatal(err)
	}
	if one.Status != "completed" || len(one.Result.Tokens) != 12 || !strings.HasSuffix(strings.TrimSpace(plain.stdout),
		strings.TrimSpace(one.Result.Text)) || one.Result.Text == "" {
		t.Errorf("%+v, llamatap run: %q", one, plain.stdout)
	}
	if report, err := rundir.Verify(filepath.Dir(one.Path)); err != nil ||
		len(report.Changed)+len(report.Missing) > 0 || filepath.Base(filepath.Dir(one.Path)) != one.ID {
		t.Errorf("%s: %+v, %v", one.Path, report, err)
	}
	var log struct {
		Text string `json:"logs_b64"`
	}
	if err := json.Unmarshal([]byte(s.ask(t, "GET", "/logs/"+one.ID, "")), &log); err != nil {
		t.Fatal(err)
	}
	if text, err := base64.StdEncoding.DecodeString(log.Text); err != nil ||
		strings.Count(string(text), `"event":"output_token"`) == 0 {
		t.Errorf("the log of the session: %v, %.200s", err, text)
	}
	lines := strings.Split(strings.TrimSpace(s.ask(t, "POST", "/log-monitoring?event=output_token",
		body(`,"stream":true`))), "\n")
	var first, last session
	if json.Unmarshal([]byte(lines[0]), &first) != nil || json.Unmarshal([]byte(lines[len(lines)-1]), &last) != nil ||
		first.Status != "running" || last.Status != "completed" ||
		first.ID != last.ID || !slices.Equal(last.Result.Tokens, one.Result.Tokens) {
		t.Errorf("%q", lines)
	}
	var fed []int
	for _, line := range lines[1 : len(lines)-1] {
		var event struct {
			Event string
			Token int `json:"token_id"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Event != "output_token" {
			t.Errorf("%s: %v", line, err)
		}
		fed = append(fed, event.Token)
	}
	if !slices.Equal(fed, one.Result.Tokens[:len(fed)]) || len(fed) < 11 { // the last token is never fed
		t.Errorf("tokens %v of %v", fed, one.Result.Tokens)
	}
}
