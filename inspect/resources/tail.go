package resources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// maxLine bounds a line in bytes. A longer one is reported as bad, and passed over.
const maxLine = 1 << 20

// ErrWaiting is returned by [Tail.Next] when everything that there is was read, and more may come.
var ErrWaiting = errors.New("no further line yet")

// Line is one line of a log.
type Line struct {
	Number int64  // from 1, over all files of the log
	Text   []byte // without the newline; valid until the next call
	Err    error  // what is wrong with it: longer than maxLine, or cut off before the next file
}

// Tail reads the lines of a log, from its first to the last that there is, and on when it grows. A file that is renamed
// while it is read is read on; a log that is rotated continues in its next file. It is not for several goroutines.
type Tail struct {
	// Going reports whether the log may grow; it is asked when all was read. Set it before the first Next; nil:
	// [Going] of the directory.
	Going func() bool
	// Done, once it is closed, ends a Next that reads on and on, in a line of any length; it returns
	// context.Canceled, and another call with an open Done continues. nil: never.
	Done <-chan struct{}

	dir    string
	single string // a file that was given by itself; "" for a directory
	part   part
	file   *os.File
	line   int64
	missed int
	buf    []byte // what was read and not given out is buf[from:]
	from   int
	over   bool // inside a line that is too long
	// skipped is how many bytes of that line were passed over; ended that it had more than rundir.MaxSkip, and the
	// file is not read further.
	skipped int
	ended   bool
}

// OpenTail opens the log of a run directory, or one file of events. A directory without one is [ErrNoLog]. The
// caller closes it.
func OpenTail(path string) (*Tail, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such file or folder: give a run directory or a file of resource events",
			path)
	case err != nil:
		return nil, err
	case !info.IsDir():
		file, err := os.Open(path)
		return &Tail{single: path, file: file, Going: func() bool { return false }}, err
	}
	all, err := parts(path)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, noLog(path)
	}
	return newTail(path), nil
}

// EachEvent calls f with the events of a log, from its first to the last that there is. Lines that are none are passed
// over. Text is valid during the call; an error of f ends the reading.
func EachEvent(ctx context.Context, path string, f func(kind resource.Kind, text []byte) error) error {
	tail, err := OpenTail(path)
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = ctx.Done()
	for line, err := range tail.All() {
		if err != nil {
			return fmt.Errorf("read events of %s: %w", path, err)
		}
		if kind, ok := KindOf(line.Text); ok {
			if err := f(kind, line.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// newTail reads a directory's log, which need not be there yet.
func newTail(dir string) *Tail {
	return &Tail{dir: dir, part: part{number: -1}, Going: func() bool { return StateOf(dir) == StateRunning }}
}

// Close closes the file that is open.
func (t *Tail) Close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

// Lines is how many whole lines were given out.
func (t *Tail) Lines() int64 { return t.line }

// Missed is how many files of the log were removed before they were read: those that a rotation gave back.
func (t *Tail) Missed() int { return t.missed }

// Unfinished is how many bytes follow the last whole line that was read: the beginning of a line whose end is
// not there (yet).
func (t *Tail) Unfinished() int { return t.skipped + len(t.buf) - t.from }

// Unread is how many bytes of the log were not given out yet.
func (t *Tail) Unread() int64 {
	unread := int64(t.Unfinished())
	if t.file != nil {
		at, err := t.file.Seek(0, io.SeekCurrent)
		if info, failed := t.file.Stat(); err == nil && failed == nil {
			unread += info.Size() - at
		}
	}
	for _, p := range t.later() {
		if info, err := os.Stat(p.path); err == nil {
			unread += info.Size()
		}
	}
	return unread
}

// All returns the lines that there are now, in order, each valid until the next. An error of reading ends them.
func (t *Tail) All() iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for {
			line, err := t.Next()
			if errors.Is(err, ErrWaiting) || errors.Is(err, io.EOF) || !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// Next returns the next line. It is [ErrWaiting] when there is none yet, and io.EOF when none will come; both may
// be asked again.
func (t *Tail) Next() (Line, error) {
	for {
		if line, ok := t.cutLine(); ok {
			return line, nil
		}
		select {
		case <-t.Done:
			return Line{}, context.Canceled
		default:
		}
		n, err := t.fill()
		var going bool
		var later []part
		if n == 0 && err == nil {
			// Asked before the last look: nothing is written after the end, nor to a file once the next one exists.
			going, later = t.Going(), t.later()
			n, err = t.fill()
		}
		switch {
		case err != nil:
			return Line{}, err
		case n > 0:
		case len(later) > 0:
			if line, ok := t.torn(); ok {
				return line, nil
			}
			if err := t.open(later[0]); err != nil {
				return Line{}, err
			}
		case going:
			return Line{}, ErrWaiting
		default:
			return Line{}, io.EOF
		}
	}
}

// cutLine cuts the next whole line off what was read.
func (t *Tail) cutLine() (Line, bool) {
	end := bytes.IndexByte(t.buf[t.from:], '\n')
	if end < 0 {
		if t.Unfinished() <= maxLine {
			return Line{}, false
		}
		t.over, t.skipped, t.from = true, t.Unfinished(), len(t.buf)
		if t.skipped <= rundir.MaxSkip {
			return Line{}, false
		}
		t.over, t.skipped, t.ended = false, 0, true
		t.line++
		return Line{Number: t.line, Err: fmt.Errorf("longer than %d bytes: the file is not read further",
			rundir.MaxSkip)}, true
	}
	text := t.buf[t.from : t.from+end]
	t.from += end + 1
	t.line++
	if t.over || len(text) > maxLine {
		t.over, t.skipped = false, 0
		return Line{Number: t.line, Err: fmt.Errorf("longer than %d bytes", maxLine)}, true
	}
	return Line{Number: t.line, Text: bytes.TrimSuffix(text, []byte("\r"))}, true
}

// torn returns the text without a newline at the end of a file that has a successor.
func (t *Tail) torn() (Line, bool) {
	if t.Unfinished() == 0 {
		return Line{}, false
	}
	err := fmt.Errorf("cut off after %d bytes, before the next file of the log", t.Unfinished())
	t.from, t.over, t.skipped = len(t.buf), false, 0
	t.line++
	return Line{Number: t.line, Err: err}, true
}

// fill reads more of the open file; 0 at its end, or while none is open.
func (t *Tail) fill() (int, error) {
	if t.file == nil || t.ended {
		return 0, nil
	}
	t.buf = append(t.buf[:0], t.buf[t.from:]...)
	t.from = 0
	const step = 64 << 10
	have := len(t.buf)
	if cap(t.buf)-have < step {
		t.buf = append(make([]byte, 0, 2*cap(t.buf)+step), t.buf...)
	}
	n, err := t.file.Read(t.buf[have:cap(t.buf)])
	t.buf = t.buf[:have+n]
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// later lists the files after the one that is open.
func (t *Tail) later() []part {
	if t.single != "" {
		return nil
	}
	all, _ := parts(t.dir)
	for len(all) > 0 && all[0].compare(t.part) <= 0 {
		all = all[1:]
	}
	return all
}

// open goes over to another file. One that was renamed between listing and opening has its last name.
func (t *Tail) open(next part) error {
	file, err := rundir.OpenFile(next.path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, p := range t.later() {
			if p.compare(next) == 0 {
				file, err = rundir.OpenFile(p.path)
			}
		}
	}
	removed := errors.Is(err, fs.ErrNotExist) // removed to make room; the next round finds what is after it
	if err != nil && !removed {
		return err
	}
	if next.segment == t.part.segment {
		t.missed += next.number - t.part.number - 1
	} else {
		t.missed += next.number
	}
	if removed {
		t.missed++
		t.part = next
		return nil
	}
	t.Close()
	t.file, t.part, t.ended = file, next, false
	return nil
}
