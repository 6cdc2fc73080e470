//go:build linux

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serving is a server that a test started, with the address and the token that it printed.
type serving struct {
	cmd             *exec.Cmd
	url, token, dir string
	said            *bufio.Reader
}

// startServe serves a folder with one event of a run. Its token files lie in a folder of the test.
func startServe(t *testing.T, flags ...string) *serving {
	t.Helper()
	dir, state := filepath.Join(t.TempDir(), "run_x"), t.TempDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resource.jsonl"), []byte("{\"event\":\"loss\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &serving{cmd: self(append([]string{"serve", dir}, flags...)...), dir: state}
	s.cmd.Env = append(s.cmd.Env, "XDG_RUNTIME_DIR=", "XDG_STATE_HOME="+state)
	said, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	s.said = bufio.NewReader(said)
	line, err := s.said.ReadString('\n')
	_, link, ok := strings.Cut(strings.TrimSpace(line), "is shown at ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	s.url, s.token, _ = strings.Cut(link, "#token=")
	return s
}

// files are the token files that there are.
func (s *serving) files(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "llamatap", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestServe starts the server on a free port, asks it with the token that it printed and without, and ends it by a
// signal while a log is followed.
func TestServe(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := startServe(t, "--addr", "127.0.0.1:0")
		files := s.files(t)
		if len(files) != 1 || !strings.Contains(files[0], s.url[strings.LastIndex(s.url, ":")+1:]) {
			t.Fatalf("token files %v of %s", files, s.url)
		}
		if text, err := os.ReadFile(files[0]); err != nil || strings.TrimSpace(string(text)) != s.token ||
			s.token == "" {
			t.Errorf("%q is kept, %q printed: %v", text, s.token, err)
		}
		for _, path := range []string{"/", "/metrics", "/api/v1/runs", "/api/v1/level", "/api/v1/resource-logs",
			"/sessions"} {
			answer, err := http.Get(s.url + path)
			if err != nil || answer.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s without the token: %v, %v", path, answer, err)
			}
			answer.Body.Close()
		}
		request, err := http.NewRequest("GET", s.url+"/api/v1/resource-logs?follow", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "{\"event\":\"loss\"}\n" {
			t.Errorf("%q, %v", text, err)
		}
		ctl := self("ctl", s.url, "level", "VERBOSE")
		ctl.Env = append(ctl.Env, "XDG_RUNTIME_DIR=", "XDG_STATE_HOME="+s.dir)
		if text, err := ctl.CombinedOutput(); err == nil || !strings.Contains(string(text), "run_x") {
			t.Errorf("ctl of a run that is not live: %v, %s", err, text)
		}
		s.cmd.Process.Signal(signal)
		rest, _ := io.ReadAll(s.said)
		if err := s.cmd.Wait(); err != nil || strings.Count(string(rest), "\n") != 1 ||
			strings.Contains(string(rest), s.token) {
			t.Errorf("%v: %v, %q", signal, err, rest)
		}
		if files := s.files(t); len(files) > 0 {
			t.Errorf("%v are left", files)
		}
	}
}

// TestServeUnixSocket: without a token a server listens on a socket of its user alone, and nowhere else.
func TestServeUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	s := startServe(t, "--listen", "unix:"+path, "--no-token")
	if info, err := os.Stat(path); err != nil || info.Mode().
		Perm() != 0o600 || s.url != "unix:"+path || len(s.files(t)) > 0 {
		t.Errorf("%v, %v, %q, %v", info, err, s.url, s.files(t))
	}
	if text, err := self("ctl", s.url, "status").CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "run_x") {
		t.Errorf("%v, %s", err, text)
	}
	for _, flags := range [][]string{{"--no-token"}, {"--no-token", "--listen", "0.0.0.0:0"}, {"--token", "short"},
		{"--no-token", "--token", "0123456789abcdef", "--listen", "unix:" + path + "2"}} {
		cmd := self(append([]string{"serve", t.TempDir()}, flags...)...)
		if text, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("%v: status %d, %s", flags, cmd.ProcessState.ExitCode(), text)
		}
	}
}
