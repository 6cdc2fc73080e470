package present

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"blk.0 ¾ µs … 模型\n\tx\n":   "blk.0 ¾ µs … 模型\n\tx\n",
		"a\x1b[2J\x1b]0;t\x07\r\b": `a\u001b[2J\u001b]0;t\u0007\u000d\u0008`,
		"\x00\x7f\u0085\u009b":     `\u0000\u007f\u0085\u009b`,
		"\x9b1m\xff\xc3":           `\x9b1m\xff\xc3`,
		"a\u202eb\u2066c\u2028":    `a\u202eb\u2066c\u2028`,
		"\ufffd":                   "\ufffd",
	} {
		if got := Quote(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Line("a\nb\tc\x1b"); got != `a\nb\tc\u001b` {
		t.Errorf("%q", got)
	}
	// JSON stays JSON: encoding/json lets DEL and C1 through.
	text, _ := json.Marshal("a\x7f\u009b")
	var back string
	if err := json.Unmarshal([]byte(Quote(string(text))), &back); err != nil || back != "a\x7f\u009b" {
		t.Errorf("%q, %v", back, err)
	}
}

// TestWriter: wherever writes split a text, the same comes out.
func TestWriter(t *testing.T) {
	const text = "µ\x1b模\u009b\xffé\n"
	for cut := range len(text) {
		for second := cut; second <= len(text); second++ {
			var out bytes.Buffer
			w := NewWriter(&out)
			for _, part := range []string{text[:cut], text[cut:second], text[second:]} {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != Quote(text) {
				t.Fatalf("cut at %d and %d: %q", cut, second, out.String())
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a\x1b[m\u202e\x80")
	f.Fuzz(func(t *testing.T, text string) {
		got := Quote(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, controls) || Quote(got) != got {
			t.Errorf("%q: %q", text, got)
		}
	})
}
