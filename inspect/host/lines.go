package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// maxLine bounds a line in bytes. A longer one is counted as bad and passed over.
const maxLine = 16 << 20

// maxBadTold is how many numbers of bad lines are kept.
const maxBadTold = 10

// Lines counts the lines of a file, and those that were not understood.
type Lines struct {
	Path  string `json:"path"`
	Total int64  `json:"lines"`               // that are not empty
	Bad   int64  `json:"bad_lines,omitempty"` // that were passed over
	// BadAt are the numbers of the first of them, from 1; BadWhy is what is wrong with the very first.
	BadAt  []int64 `json:"bad_line_numbers,omitempty"`
	BadWhy string  `json:"bad_line_reason,omitempty"`
	// TornBytes is the length of a last line that has no end and is not JSON: the file is still written, or its
	// writer was killed.
	TornBytes int `json:"torn_last_line_bytes,omitempty"`
	// Padding counts NUL bytes, as writers leave them behind that map their file and are killed.
	Padding int64 `json:"padding_bytes,omitempty"`

	read func(n int) // is called with the bytes that are read; nil: nothing is
}

// errNoObject is what is wrong with a line of JSON that is not an object.
var errNoObject = errors.New("no JSON object")

// errEndless is what is wrong with a line whose end was not looked for any further.
var errEndless = fmt.Errorf("longer than %d bytes: the file is not read further", rundir.MaxSkip)

// bad notes a line that cannot be used.
func (l *Lines) bad(number int64, err error) {
	if l.Bad++; l.Bad == 1 {
		l.BadWhy = err.Error()
	}
	if len(l.BadAt) < maxBadTold {
		l.BadAt = append(l.BadAt, number)
	}
}

// warning says in one line what was passed over; "" where that is nothing.
func (l *Lines) warning() string {
	var parts []string
	if l.Bad > 0 {
		at := make([]string, len(l.BadAt))
		for i, n := range l.BadAt {
			at[i] = strconv.FormatInt(n, 10)
		}
		more := ""
		if l.Bad > int64(len(at)) {
			more = fmt.Sprintf(" and %d more", l.Bad-int64(len(at)))
		}
		what := "lines are"
		if l.Bad == 1 {
			what = "line is"
		}
		parts = append(parts, fmt.Sprintf("%d %s no snapshot and passed over: %s%s (%s)", l.Bad, what,
			strings.Join(at, ", "), more, l.BadWhy))
	}
	if l.TornBytes > 0 {
		parts = append(parts, fmt.Sprintf("the last line is cut off after %d bytes", l.TornBytes))
	}
	if len(parts) == 0 {
		return ""
	}
	return l.Path + ": " + strings.Join(parts, "; ")
}

// readLines hands every line of r that is a JSON object to each, whose error makes the line a bad one. A byte order
// mark, NUL bytes around a line and empty lines are passed over. The text is valid until each returns.
func readLines(r io.Reader, l *Lines, each func(text []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var line []byte
	for number := int64(1); ; number++ {
		var over, ended bool
		var err error
		line, over, ended, err = l.next(in, line[:0])
		if errors.Is(err, errEndless) {
			l.Total++
			l.bad(number, err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s, line %d: %w", l.Path, number, err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		text := bytes.Trim(line, "\x00 \t\r\n")
		switch {
		case over:
			l.Total++
			l.bad(number, fmt.Errorf("longer than %d bytes", maxLine))
		case len(text) > 0:
			l.Total++
			l.passLine(number, text, ended, each)
		}
		if ended {
			return nil
		}
	}
}

// passLine passes on one line.
func (l *Lines) passLine(number int64, text []byte, last bool, each func([]byte) error) {
	if last && !json.Valid(text) {
		l.Total--
		l.TornBytes = len(text)
		return
	}
	err := errNoObject
	if text[0] == '{' {
		err = each(text)
	}
	if err != nil {
		l.bad(number, err)
	}
}

// next reads one line into dst, without NUL bytes before it. over: the line is longer than maxLine; ended:
// nothing follows.
func (l *Lines) next(in *bufio.Reader, dst []byte) (line []byte, over, ended bool, err error) {
	for read := 0; ; {
		piece, err := in.ReadSlice('\n')
		if read += len(piece); read > rundir.MaxSkip {
			return dst[:0], true, true, errEndless
		}
		if len(dst) == 0 && !over {
			rest := bytes.TrimLeft(piece, "\x00")
			l.Padding += int64(len(piece) - len(rest))
			piece = rest
		}
		if over = over || len(dst)+len(piece) > maxLine; over {
			dst = dst[:0]
		} else {
			dst = append(dst, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return dst, over, true, nil
		default:
			return dst, over, false, err
		}
	}
}

// decode reads a JSON object into to. Fields of another type than they should have are left out, as if they were
// not there.
func decode(text []byte, to any) error {
	err := json.Unmarshal(text, to)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// maxNumber bounds figures, so that their sums are finite. No counter and no time reaches it.
const maxNumber = 1e18

// number is a JSON number, or a text that holds one. What is neither, or beyond maxNumber, is not known.
type number struct {
	v     float64
	known bool
}

// UnmarshalJSON never fails: a value that is not a number is unknown.
func (n *number) UnmarshalJSON(text []byte) error {
	*n = number{}
	if len(text) >= 2 && text[0] == '"' {
		text = bytes.TrimSpace(text[1 : len(text)-1])
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err == nil && v > -maxNumber && v < maxNumber {
		*n = number{v, true}
	}
	return nil
}

// count is the number as a count: not below 0, and without fraction.
func (n number) count() uint64 {
	if !n.known || n.v <= 0 {
		return 0
	}
	return uint64(min(n.v, 1<<62))
}

// word is a JSON text; of another type it is empty.
type word string

// UnmarshalJSON never fails.
func (w *word) UnmarshalJSON(text []byte) error {
	*w = ""
	if len(text) > 0 && text[0] == '"' {
		var s string
		if err := json.Unmarshal(text, &s); err == nil {
			*w = word(s)
		}
	}
	return nil
}

// first is the first of some numbers that is known.
func first(of ...number) number {
	if i := slices.IndexFunc(of, func(n number) bool { return n.known }); i >= 0 {
		return of[i]
	}
	return number{}
}
