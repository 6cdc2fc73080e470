//go:build llama

package runner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLogprobsAreServers compares tokens and log-probabilities with llama-server's answer to the same line.
func TestLogprobsAreServers(t *testing.T) {
	const line = `{"prompt":"func main() {","n_predict":8,"temperature":0,"n_probs":3,"seed":1}`
	answers, _, err := answer(t, line)
	if err != nil {
		t.Fatal(err)
	}
	var theirs struct {
		Content string
		Probs   []struct {
			ID      int32
			Logprob float64
			Top     []struct {
				ID      int32
				Logprob float64
			} `json:"top_logprobs"`
		} `json:"completion_probabilities"`
	}
	body := post(t, serve(t)+"/completion", line)
	if err := json.Unmarshal(body, &theirs); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	ours := answers[0]
	if ours.Text != theirs.Content || len(ours.Logprobs) != 8 || len(theirs.Probs) != 8 {
		t.Fatalf("%q and %d, llama-server's %q and %d: %s", ours.Text, len(ours.Logprobs), theirs.Content,
			len(theirs.Probs), body)
	}
	for i, p := range theirs.Probs {
		got := ours.Logprobs[i]
		if int32(got.ID) != p.ID || math.Abs(*got.Logprob-p.Logprob) > 0.01 || len(got.Top) != 3 || len(p.Top) != 3 {
			t.Errorf("token %d: %+v, llama-server's %+v", i, got, p)
			continue
		}
		for j := range p.Top {
			if int32(got.Top[j].ID) != p.Top[j].ID || math.Abs(*got.Top[j].Logprob-p.Top[j].Logprob) > 0.01 {
				t.Errorf("token %d, likeliest %d: %+v, llama-server's %+v", i, j, got.Top[j], p.Top[j])
			}
		}
	}
}

// serve starts llama-server with the embedded model and further arguments and returns its address when it is ready.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := port.Addr().(*net.TCPAddr)
	port.Close()
	args = append([]string{"-m", testenv.Model(t), "--port", fmt.Sprint(address.Port), "-t", "1", "-np", "1",
		"--no-webui"}, args...)
	cmd := testenv.NeedTool(t, "llama-server").Command(args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for begin := time.Now(); time.Since(begin) < testenv.Patience(); time.Sleep(50 * time.Millisecond) {
		if r, err := http.Get("http://" + address.String() + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "http://" + address.String()
			}
		}
	}
	t.Fatal("llama-server did not become ready")
	return ""
}

func post(t *testing.T, url, body string) []byte {
	t.Helper()
	r, err := http.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, status %d: %s", url, err, r.StatusCode, text)
	}
	return text
}
