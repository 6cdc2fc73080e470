package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/internal/cli"
)

// promptLine is one line of a prompt file that is not blank.
type promptLine struct {
	number int   // counted from 1
	end    int64 // bytes of the file up to its end
	text   []byte
	err    error // the line is too long, or the file cannot be read further
}

var errLongLine = fmt.Errorf("longer than %d MiB: no context holds it", maxPromptBytes>>20)

// sendLines sends the lines of in until its end, or until done is closed, and closes lines then.
func sendLines(in io.Reader, lines chan<- promptLine, done <-chan struct{}) {
	defer close(lines)
	reader := bufio.NewReaderSize(in, 64<<10)
	for line := (promptLine{}); ; {
		text, size, err := readLine(reader)
		line.number++
		line.end += size
		line.text, line.err = bytes.TrimSpace(text), err
		if line.number == 1 {
			line.text = bytes.TrimPrefix(line.text, []byte("\uFEFF"))
		}
		ended := err != nil && !errors.Is(err, errLongLine)
		if errors.Is(err, io.EOF) {
			line.err = nil
		}
		if len(line.text) > 0 || line.err != nil {
			select {
			case lines <- line:
			case <-done:
				return
			}
		}
		if ended {
			return
		}
	}
}

// readLine reads to the end of a line; size counts its bytes. Of a line that is too long nothing is kept, and the
// error is errLongLine.
func readLine(reader *bufio.Reader) (text []byte, size int64, err error) {
	for {
		part, err := reader.ReadSlice('\n')
		size += int64(len(part))
		if size <= maxPromptBytes {
			text = append(text, part...)
		} else {
			text = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case size > maxPromptBytes && (err == nil || errors.Is(err, io.EOF)):
			return nil, size, errLongLine // after the end of the file, the next read says so
		}
		return text, size, err
	}
}

// promptInput are the lines of a prompt file.
type promptInput struct {
	from   io.Reader // read by a goroutine alone
	file   *os.File  // nil: stdin
	size   int64     // bytes of it
	stream bool      // lines may be long in coming: work continues meanwhile
	lines  <-chan promptLine
	ended  bool // no line is to come
}

// openPrompts opens a prompt file, or takes stdin for it.
func openPrompts(path string, stdin io.Reader) (*promptInput, error) {
	if path == "-" {
		if stdin == nil {
			return nil, fmt.Errorf("%w --prompts -: there is no stdin", ErrPrompt)
		}
		if file, ok := stdin.(*os.File); ok && isDevice(file) {
			return nil, fmt.Errorf("%w --prompts -: stdin is a device, which may have no end: give a file, a pipe "+
				"or a terminal", ErrPrompt)
		}
		return &promptInput{from: stdin, stream: true}, nil
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w --prompts %s: no such file: check the path", ErrPrompt, path)
	case err != nil:
		return nil, fmt.Errorf("%w --prompts %s: %w", ErrPrompt, path, cli.Bare(err))
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		file.Close()
		return nil, fmt.Errorf("%w --prompts %s: %w", ErrPrompt, path, cli.Bare(err))
	case info.IsDir():
		file.Close()
		return nil, fmt.Errorf("%w --prompts %s is a folder: give a file in it", ErrPrompt, path)
	case isDevice(file):
		file.Close()
		return nil, fmt.Errorf("%w --prompts %s is a device, which may have no end: give a file or a pipe", ErrPrompt,
			path)
	}
	return &promptInput{from: file, file: file, stream: !info.Mode().IsRegular(), size: info.Size()}, nil
}

func (in *promptInput) close() {
	if in.file != nil {
		in.file.Close()
	}
}

// isDevice reports whether a file is a device other than a terminal.
func isDevice(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeDevice != 0 && !term.IsTerminal(int(file.Fd()))
}

// receive returns the next line. false: there is none, or none yet. Of a stream it is not waited for while others are
// under way.
func (in *promptInput) receive(ctx context.Context, busy bool) (line promptLine, ok bool, err error) {
	if in.stream && busy {
		select {
		case line, ok = <-in.lines:
		default:
			return line, false, nil
		}
	} else {
		select {
		case line, ok = <-in.lines:
		case <-ctx.Done():
			return line, false, ErrInterrupted
		}
	}
	in.ended = in.ended || !ok
	return line, ok, nil
}
