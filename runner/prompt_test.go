package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/config"
)

func TestReadPrompt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(file, []byte("a\\tb\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		set   func(*config.Run)
		stdin string
		want  string
	}{
		{"flag", func(r *config.Run) { r.Prompt = "x\ny" }, "", "x\ny"},
		{"empty", func(*config.Run) {}, "not read", ""},
		{"escapes", func(r *config.Run) { r.Prompt = `\n\r\t\'\"\\|\x41\x7a|\q\xg1\x1|\` }, "",
			"\n\r\t'\"\\|Az|\\q\\xg1\\x1|\\"},
		{"escaped backslash", func(r *config.Run) { r.Prompt = `\\n` }, "", `\n`},
		{"escapes of UTF-8", func(r *config.Run) { r.Prompt = `\xc3\xa9` }, "", "é"},
		{"no escapes", func(r *config.Run) { r.Prompt, r.Escape = `a\nb`, false }, "", `a\nb`},
		{"file", func(r *config.Run) { r.PromptFile = file }, "", "a\tb\n"},
		{"file without escapes", func(r *config.Run) { r.PromptFile, r.Escape = file, false }, "", "a\\tb\n"},
		{"stdin", func(r *config.Run) { r.PromptFile = "-" }, "from stdin\n", "from stdin"},
		{"flag keeps its newline", func(r *config.Run) { r.Prompt = "a\n" }, "", "a\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config.NewRun()
			test.set(cfg)
			stdin := strings.NewReader(test.stdin)
			got, err := ReadPrompt(context.Background(), cfg, stdin)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
			if read := len(test.stdin) - stdin.Len(); read > 0 && cfg.PromptFile != "-" {
				t.Errorf("%d bytes of stdin were read", read)
			}
		})
	}
}

// never is a stdin on which nothing is typed.
type never struct{}

func (never) Read([]byte) (int, error) { select {} }

func TestReadPromptErrors(t *testing.T) {
	dir := t.TempDir()
	latin := filepath.Join(dir, "latin1")
	if err := os.WriteFile(latin, []byte("caf\xe9"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		set  func(*config.Run)
		want string
	}{
		{"missing", func(r *config.Run) { r.PromptFile = filepath.Join(dir, "none") }, "no such file"},
		{"folder", func(r *config.Run) { r.PromptFile = dir }, "is a folder"},
		{"device without end", func(r *config.Run) { r.PromptFile = "/dev/zero" }, "larger than 64 MiB"},
		{"invalid UTF-8 in a file", func(r *config.Run) { r.PromptFile = latin }, "at byte 3"},
		{"invalid UTF-8 by escape", func(r *config.Run) { r.Prompt = `ab\xff` }, "at byte 2"},
		{"no stdin", func(r *config.Run) { r.PromptFile = "-" }, "no stdin"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config.NewRun()
			test.set(cfg)
			_, err := ReadPrompt(context.Background(), cfg, nil)
			if !errors.Is(err, ErrPrompt) || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
		})
	}
	cause := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	cfg := config.NewRun()
	cfg.PromptFile = "-"
	if _, err := ReadPrompt(ctx, cfg, never{}); !errors.Is(err, ErrInterrupted) || !errors.Is(err, cause) {
		t.Errorf("interrupted: %v", err)
	}
}
