//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// A server is llama-server, as somebody started it.
type server struct {
	cmd    *exec.Cmd
	url    string
	out    string
	stderr bytes.Buffer
	exited chan struct{}
}

// serve starts llama-server under llamatap exec and returns when it answers.
func serve(t *testing.T, tap []string, args ...string) *server {
	t.Helper()
	out := t.TempDir()
	line := slices.Concat([]string{testenv.NeedBinary(t), "exec", "--tap-out", out}, tap,
		[]string{"--", "llama-server"}, args)
	return serveBy(t, out, line...)
}

// serveBy starts llama-server by a command line that lacks its address, and perhaps the model, and returns when it
// answers. out is where it records.
func serveBy(t *testing.T, out string, line ...string) *server {
	t.Helper()
	testenv.NeedPrograms(t, line...)
	port := freePort(t)
	s := &server{url: "http://127.0.0.1:" + port, out: out, exited: make(chan struct{})}
	line = append(slices.Clone(line), "--host", "127.0.0.1", "--port", port)
	if !slices.Contains(line, "-m") && !slices.Contains(line, "--models-dir") {
		line = append(line, "-m", testenv.Model(t))
	}
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Stderr = &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.cmd.Wait(); close(s.exited) }()
	t.Cleanup(s.stop)
	for {
		if response, err := http.Get(s.url + "/health"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case <-s.exited:
			t.Fatalf("llama-server ended early: %v\n%s", s.cmd.ProcessState, s.stderr.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freePort is a port of loopback that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// A completionAnswer is what llama-server says about a completion.
type completionAnswer struct {
	Content   string  `json:"content"`
	Tokens    []int32 `json:"tokens"`
	Slot      int32   `json:"id_slot"`
	Evaluated int     `json:"tokens_evaluated"`
	Predicted int     `json:"tokens_predicted"`
	Timings   struct {
		Cached      int     `json:"cache_n"`
		Prompt      int     `json:"prompt_n"`
		Predicted   int     `json:"predicted_n"`
		Drafted     int     `json:"draft_n"`
		Accepted    int     `json:"draft_n_accepted"`
		PromptMS    float64 `json:"prompt_ms"`
		PredictedMS float64 `json:"predicted_ms"`
	} `json:"timings"`
	StopType string `json:"stop_type"`
}

// post asks the server.
func (s *server) post(t *testing.T, path string, question map[string]any, answer any) {
	t.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		t.Error(err)
		return
	}
	response, err := http.Post(s.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, data)
	}
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		t.Error(err)
	}
}

func (s *server) stop() {
	s.cmd.Process.Signal(terminate)
	<-s.exited
}

// end stops the server and opens what was recorded.
func (s *server) end(t *testing.T) *capture {
	t.Helper()
	s.stop()
	o := outcome{args: s.cmd.Args, stderr: s.stderr.String(), status: s.cmd.ProcessState.ExitCode(),
		dirs: runDirs(t, s.out)}
	return o.good(t).capture(t)
}

// TestTokensOfServer lets two slots generate at the same time, one of them twice.
func TestTokensOfServer(t *testing.T) {
	s := serve(t, residual, "-np", "2", "-c", "1024", "-t", "1", "--no-webui")
	questions := []struct {
		prompt string
		slot   int32
	}{{"func main() {", 0}, {"package http", 1}, {long, 0}}
	answers := make([]completionAnswer, len(questions))
	ask := func(i int) {
		s.post(t, "/completion", map[string]any{
			"prompt": questions[i].prompt, "id_slot": questions[i].slot, "n_predict": 12 + 5*i, "temperature": 0,
			"return_tokens": true, "cache_prompt": false, "ignore_eos": true,
		}, &answers[i])
	}
	var both sync.WaitGroup
	both.Go(func() { ask(0); ask(2) })
	both.Go(func() { ask(1) })
	both.Wait()
	want := map[int32][]int32{}
	for i, a := range answers {
		var prompt struct{ Tokens []int32 }
		s.post(t, "/tokenize", map[string]any{"content": questions[i].prompt, "add_special": true}, &prompt)
		if a.Slot != questions[i].slot || a.Evaluated != len(prompt.Tokens) || len(a.Tokens) != a.Predicted ||
			a.Predicted < 2 {
			t.Fatalf("%+v for a prompt of %d tokens", a, len(prompt.Tokens))
		}
		want[a.Slot] = append(want[a.Slot], prompt.Tokens...)
		want[a.Slot] = append(want[a.Slot], a.Tokens[:a.Predicted-1]...) // the last one is chosen and never decoded
	}
	c := s.end(t).sealed(t)
	wantPlain(t, c)
	got := map[int32][]int32{}
	for _, token := range c.tokens {
		got[*token.Seq] = append(got[*token.Seq], token.ID)
	}
	for slot := range want {
		wantIDs(t, fmt.Sprintf("slot %d", slot), got[slot], want[slot])
	}
	decoded := 0
	for _, a := range answers {
		decoded += a.Predicted - 1
	}
	if n := len(c.ids("decode")); n != decoded {
		t.Errorf("%d tokens of phase decode, want %d", n, decoded)
	}
	c.setup(t, 4) // warm-up and probe
}
