package runner

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// chunks remembers every write.
type chunks [][]byte

func (c *chunks) Write(p []byte) (int, error) {
	*c = append(*c, bytes.Clone(p))
	return len(p), nil
}

// TestText feeds strings in pieces of every size: no byte is lost, and no write ends inside a character.
func TestText(t *testing.T) {
	for _, s := range []string{"plain", "žluťoučký kůň", "a😀b🏳️‍🌈", "日本語", "\x00\n"} {
		for size := 1; size <= 5; size++ {
			var out chunks
			w := text{out: &out}
			for rest := s; rest != ""; {
				n := min(size, len(rest))
				w.pending = append(w.pending, rest[:n]...)
				rest = rest[n:]
				if err := w.write(); err != nil {
					t.Fatal(err)
				}
				if len(w.pending) >= utf8.UTFMax {
					t.Errorf("%q: %d bytes are held back", s, len(w.pending))
				}
			}
			if len(w.pending) != 0 {
				t.Errorf("%q is complete, and %q is held back", s, w.pending)
			}
			for _, chunk := range out {
				if !utf8.Valid(chunk) {
					t.Errorf("%q in pieces of %d: wrote %q", s, size, chunk)
				}
			}
			if got := string(bytes.Join(out, nil)); got != s {
				t.Errorf("pieces of %d: got %q, want %q", size, got, s)
			}
		}
	}
}

// TestTextInvalid checks that bytes that are no UTF-8, or its unfinished beginning, are all written in the end.
func TestTextInvalid(t *testing.T) {
	for _, s := range []string{"a\xff", "\x80\x80\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "\xc3", "\xc3\xc3\xc3a",
		"\xf8\x88\x80"} {
		var out bytes.Buffer
		w := text{out: &out}
		for i := range len(s) {
			w.pending = append(w.pending, s[i])
			if err := w.write(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.flush(); err != nil || out.String() != s {
			t.Errorf("got %q, %v; want %q", out.String(), err, s)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestTextError(t *testing.T) {
	w := text{out: broken{}, pending: []byte("a")}
	if err := w.write(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	w = text{pending: []byte("a")}
	if err := w.flush(); err != nil || len(w.pending) != 0 {
		t.Errorf("nobody reads: %v", err)
	}
}
