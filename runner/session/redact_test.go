//go:build linux

package session

import (
	"slices"
	"strings"
	"testing"
)

func TestRedactCommand(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"llamatap run -m a.gguf -p SECRET -n 24 --tap-redact text",
			"llamatap run --tap-redact=text -m a.gguf -p [redacted] -n 24"},
		{"llamatap run -p -SECRET --temp 0.5", "llamatap run -p [redacted] --temp 0.5"},
		{"llamatap run -p 42 -n 42", "llamatap run -p [redacted] -n 42"},
		{"llamatap run --prompt=SECRET --seed=1", "llamatap run --prompt=[redacted] --seed=[redacted]"},
		{"llamatap exec --tap-layers=1 -- llama-cli -sys SECRET -r SECRET -c 512",
			"llamatap exec --tap-layers=1 -- llama-cli -sys [redacted] -r [redacted] -c 512"},
		{"llamatap exec --tap-attention ./simple SECRET -m m.gguf",
			"llamatap exec --tap-attention=keep ./simple [redacted] -m m.gguf"},
		{"llama-simple --tap-attention SECRET WORDS", "llama-simple --tap-attention=keep [redacted] [redacted]"},
		{"llama-cli -- SECRET", "llama-cli -- [redacted]"},
		{"llamatap", "llamatap"},
	} {
		if got := strings.Join(redactCommand(strings.Fields(c.line)), " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	args := []string{"llamatap", "run", "-p", "SECRET"}
	if redactCommand(args); !slices.Equal(args, []string{"llamatap", "run", "-p", "SECRET"}) {
		t.Error("the command line itself was changed")
	}
}
