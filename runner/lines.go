package runner

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
