//go:build linux

package oracle

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// serving starts a server and returns its address.
func serving(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, _ := bufio.NewReader(log).ReadString('\n')
	if url = regexp.MustCompile(`http://[0-9.:]+`).FindString(line); url == "" {
		t.Fatalf("the server does not start: %q", line)
	}
	return url
}

// fetch asks a server with a token, or without.
func fetch(url, token string) (status int, text string, err error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// aToken is one that servers below take.
const aToken = "0123456789abcdef0123456789abcdef"

// needsToken asks a server what a stranger on the machine would.
func needsToken(t *testing.T, p *prepared) {
	url := serving(t, p.tensor.out())
	for _, path := range []string{"/api/v1/runs", "/resource-logs"} {
		if status, _, err := fetch(url+path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s is answered with %d, %v", path, status, err)
		}
	}
}

func listsRoutes(t *testing.T, p *prepared) {
	status, text, err := fetch(serving(t, "--token", aToken, p.tensor.out())+"/", aToken)
	if status != http.StatusOK || !strings.Contains(text, "GET /healthz\n") || strings.Contains(text, "{$}") {
		t.Errorf("%d, %v: %s", status, err, text)
	}
}

// idleClients: connections that ask for nothing take no place of those that have the token.
func idleClients(t *testing.T, p *prepared) {
	url := serving(t, "--token", aToken, p.tensor.out())
	for range 64 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status, _, err := fetch(url+"/api/v1/runs", aToken); status != http.StatusOK {
		t.Errorf("with 64 idle clients: %d, %v", status, err)
	}
}

// metricsOfFIFO: a run that cannot be read is reported by its name, and the server answers.
func metricsOfFIFO(t *testing.T, p *prepared) {
	dir, fifo := plantFIFO(t, p, p.kv, "metrics")
	url := serving(t, "--token", aToken, filepath.Join(p.dir, "metrics"))
	ended := make(chan error, 1)
	go func() {
		status, text, err := fetch(url+"/metrics", aToken)
		if err == nil && (status != http.StatusOK || !strings.Contains(text, filepath.Base(dir))) {
			err = fmt.Errorf("%d: %.300s", status, text)
		}
		ended <- err
	}()
	if err, _ := endsOrOpens(t, "/metrics", fifo, ended); err != nil {
		t.Error(err)
	}
}
