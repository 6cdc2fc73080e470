package present

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Out and Err are the way to standard output and standard error. Names in a model, a recording or a configuration
// come from anywhere; written as they are, they could move the cursor, recolour or retitle the terminal, or hide what
// was printed. So everything that a command prints goes through Out and Err, which escape what controls a terminal.
// They write text: what is binary, and what a child process writes, goes to the files themselves.
var (
	Out io.Writer = NewWriter(os.Stdout)
	Err io.Writer = NewWriter(os.Stderr)
)

// Print writes its operands to Out, as fmt.Print does.
func Print(a ...any) (int, error) { return fmt.Fprint(Out, a...) }

// Printf writes to Out, as fmt.Printf does.
func Printf(format string, a ...any) (int, error) { return fmt.Fprintf(Out, format, a...) }

// Println writes its operands to Out, as fmt.Println does.
func Println(a ...any) (int, error) { return fmt.Fprintln(Out, a...) }

// NewWriter returns a writer to out that escapes as [Quote] does. A character may be split over two writes; what is not
// whole is held until the next. It may be used by several goroutines.
func NewWriter(out io.Writer) io.Writer { return &writer{out: out} }

type writer struct {
	mu   sync.Mutex
	out  io.Writer
	held []byte // the beginning of a character
	err  error  // the first error of a write
}

// Columns is the width of the terminal that w writes to, 0 where it writes to none.
func (w *writer) Columns() int {
	file, ok := w.out.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Columns is the width of the terminal that Out writes to; where that is not a terminal, otherwise.
func Columns(otherwise int) int {
	if w, ok := Out.(*writer); ok && w.Columns() > 0 {
		return w.Columns()
	}
	return otherwise
}

// Failed returns the first error that writing to Out met, such as a full disk behind a redirection: a command that
// prints does not look at each.
func Failed() error {
	w, ok := Out.(*writer)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Write writes p, escaped. It reports all of p as written unless out fails.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := p
	if len(w.held) > 0 {
		text = append(w.held, p...)
	}
	whole := len(text) - unfinished(text)
	w.held = append([]byte(nil), text[whole:]...)
	text = text[:whole]
	if !plain(text) {
		text = appendQuoted(make([]byte, 0, len(text)+16), text)
	}
	if _, err := w.out.Write(text); err != nil {
		w.err = cmp.Or(w.err, err)
		return 0, err
	}
	return len(p), nil
}

// Quote escapes control characters other than newline and tab, characters that reverse the direction of text, and
// bytes that are not UTF-8: \u001b, \u202e, \x9b. The first form is JSON's, so that JSON stays JSON.
func Quote(text string) string {
	if plain([]byte(text)) {
		return text
	}
	return string(appendQuoted(nil, []byte(text)))
}

// Line is Quote for text that must stay on one line: newlines and tabs are escaped, too.
func Line(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Quote(text))
}

// plain reports whether text is ASCII without control characters: nearly all that is printed.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

func appendQuoted(dst, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = fmt.Appendf(dst, `\x%02x`, text[0])
		case controls(r):
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst
}

// controls reports whether a character acts on a terminal: C0 but newline and tab, DEL, C1, line separators,
// overrides of direction.
func controls(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < ' ', r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029:
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// unfinished is how many bytes at the end of text begin a character that more bytes may complete.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		c := text[len(text)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
