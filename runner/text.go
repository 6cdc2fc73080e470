package runner

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/cli"
)

// text writes pieces of tokens in whole UTF-8 characters: a character that several tokens spell is held back until
// it is complete. Bytes that are not UTF-8 pass through.
type text struct {
	out     io.Writer // nil: nobody
	pending []byte    // not written yet; after write at most 3 bytes
}

// write writes the whole characters of pending, to which the caller has appended the bytes of a token.
func (t *text) write() error {
	n := len(t.pending)
	for back := 1; back <= min(utf8.UTFMax-1, n); back++ {
		if tail := t.pending[n-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				n -= back
			}
			break
		}
	}
	return t.emit(n)
}

// flush writes what is held back.
func (t *text) flush() error { return t.emit(len(t.pending)) }

func (t *text) emit(n int) error {
	if n == 0 {
		return nil
	}
	if t.out != nil {
		if _, err := t.out.Write(t.pending[:n]); err != nil {
			return fmt.Errorf("write the generated text: %w", cli.Bare(err))
		}
	}
	t.pending = append(t.pending[:0], t.pending[n:]...)
	return nil
}
