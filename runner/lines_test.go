package runner

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLinesHuge reads a line beyond the limit: it is an error of that line, and what follows is read.
func TestLinesHuge(t *testing.T) {
	huge := io.LimitReader(endlessText{}, maxPromptBytes+100)
	lines := make(chan promptLine)
	go sendLines(io.MultiReader(strings.NewReader("a\n"), huge, strings.NewReader("\nb\n")), lines, nil)
	var got []promptLine
	for line := range lines {
		got = append(got, line)
	}
	if len(got) != 3 || string(got[0].text) != "a" || !errors.Is(got[1].err, errLongLine) || got[1].text != nil ||
		string(got[2].text) != "b" || got[2].number != 3 {
		t.Errorf("%d lines: %.200v", len(got), got)
	}
	if last := got[len(got)-1]; last.end != maxPromptBytes+100+5 {
		t.Errorf("the last line ends at %d", last.end)
	}
}

func TestLinesBrokenFile(t *testing.T) {
	broken := errors.New("broken")
	lines := make(chan promptLine, 8)
	sendLines(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), lines, nil)
	if line := <-lines; string(line.text) != "a" || line.err != nil {
		t.Errorf("%+v", line)
	}
	if line := <-lines; !errors.Is(line.err, broken) {
		t.Errorf("%+v", line)
	}
	if line, more := <-lines; more {
		t.Errorf("%+v behind the error", line)
	}
}

type endlessText struct{}

func (endlessText) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
