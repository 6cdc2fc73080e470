//go:build linux

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServe starts the server on a free port, asks it, and ends it by a signal while a log is followed.
func TestServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run_x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resource.jsonl"), []byte("{\"event\":\"loss\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := self("serve", dir, "--addr", "127.0.0.1:0")
		said, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		lines := bufio.NewReader(said)
		line, err := lines.ReadString('\n')
		_, url, ok := strings.Cut(strings.TrimSpace(line), "is shown at ")
		if err != nil || !ok {
			t.Fatalf("%q, %v", line, err)
		}
		answer, err := http.Get(url + "/api/v1/resource-logs?follow")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "{\"event\":\"loss\"}\n" {
			t.Errorf("%q, %v", text, err)
		}
		cmd.Process.Signal(signal)
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || len(rest) > 0 {
			t.Errorf("%v: %v, %q", signal, err, rest)
		}
	}
}
