//go:build linux

package session

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/llamatap/llamatap/store/rundir"
)

// event is one line of control.jsonl: a command when it came (command), the first execution that goes by what it
// selected (applied), the execution by which its tokens were had (done).
type event struct {
	Event   string   `json:"event"`
	Command string   `json:"command,omitempty"`
	Tensors []string `json:"tensors,omitempty"`
	Points  []string `json:"points,omitempty"`
	Layers  string   `json:"layers,omitempty"`
	Tokens  int64    `json:"tokens,omitempty"`
	Level   string   `json:"level,omitempty"`
	// Steering is what a steer command adds, and (applied) its first execution.
	Steering  *rundir.Steering `json:"steering,omitempty"`
	Selection uint32           `json:"selection,omitempty"`
	FirstExec uint64           `json:"first_exec,omitempty"` // executions count from 1
	DoneExec  uint64           `json:"done_exec,omitempty"`
	MonoNS    int64            `json:"mono_ns"`
	UnixNS    int64            `json:"unix_ns"`
}

// changeLog writes control.jsonl, line by line as things happen. The file is made with the first command.
type changeLog struct {
	file io.WriteCloser // nil: not made yet, or closed
	err  error          // the first one
}

// open makes the file, once.
func (l *changeLog) open(dir *rundir.Dir) error {
	if l.file == nil && l.err == nil {
		l.file, l.err = dir.CreateLive(rundir.ControlName)
	}
	return l.err
}

// append writes an event. The first error sticks, and close returns it.
func (l *changeLog) append(e event) {
	if l.file == nil || l.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	l.err = err
}

// close ends the file, which the directory holds then.
func (l *changeLog) close() error {
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.err, l.file.Close())
	l.file = nil
	return err
}
