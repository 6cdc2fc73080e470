//go:build linux

package session

import (
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/collect"
)

// TestWhyNothing holds the reasons that are printed where nothing was recorded: a program that a signal ended early is
// no static one.
func TestWhyNothing(t *testing.T) {
	interrupted := collect.Exit{Signal: syscall.SIGINT}
	for _, c := range []struct {
		name  string
		found collect.Found
		exit  collect.Exit
		want  string
	}{
		{"static", collect.Found{}, collect.Exit{}, "its loader ignores LD_PRELOAD"},
		{"interrupted before the tap", collect.Found{}, interrupted,
			"SIGINT ended the program before it computed anything"},
		{"no llama.cpp", collect.Found{Tap: true}, collect.Exit{}, "did not load llama.cpp as a shared library"},
		{"interrupted before llama.cpp", collect.Found{Tap: true}, interrupted,
			"SIGINT ended the program before it computed anything"},
		{"no context", collect.Found{Tap: true, Llama: true}, collect.Exit{Status: 1}, "the program made no context"},
		{"interrupted while loading", collect.Found{Tap: true, Llama: true}, interrupted,
			"SIGINT ended the program before it computed anything"},
		{"no graph", collect.Found{Tap: true, Llama: true, Recorded: true}, interrupted, "computed no graph"},
		{"other ggml", collect.Found{Tap: true, OtherGGML: true}, interrupted, "has other structures"},
		{"no room", collect.Found{Tap: true, NoMemory: true}, interrupted, "ulimit -v"},
	} {
		if got := whyNothing(c.found, "", c.exit); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
