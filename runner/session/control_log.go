//go:build linux

package session

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
)

// event is one line of control.jsonl: a command when it came (command), the first execution that goes by what it
// selected (applied), the execution by which its tokens were had (done).
type event struct {
	Event     string   `json:"event"`
	Command   string   `json:"command,omitempty"`
	Tensors   []string `json:"tensors,omitempty"`
	Layers    string   `json:"layers,omitempty"`
	Tokens    int64    `json:"tokens,omitempty"`
	Level     string   `json:"level,omitempty"`
	Selection uint32   `json:"selection,omitempty"`
	FirstExec uint64   `json:"first_exec,omitempty"` // executions count from 1
	DoneExec  uint64   `json:"done_exec,omitempty"`
	MonoNS    int64    `json:"mono_ns"`
	UnixNS    int64    `json:"unix_ns"`
}

// changeLog writes control.jsonl, line by line as things happen. The file is made with the first command.
type changeLog struct {
	file *os.File
	sum  hash.Hash
	size int64
	err  error
}

// open makes the file, once.
func (l *changeLog) open(dir *rundir.Dir) error {
	if l.file != nil || l.err != nil {
		return l.err
	}
	l.file, l.err = os.OpenFile(filepath.Join(dir.Path(), rundir.ControlName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	l.sum = sha256.New()
	return l.err
}

// append writes an event. The first error sticks, and close returns it.
func (l *changeLog) append(e event) {
	if l.file == nil || l.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		l.err = err
		return
	}
	n, err := l.file.Write(append(line, '\n'))
	l.size += int64(n)
	l.sum.Write(append(line, '\n')[:n])
	l.err = err
}

// close ends the file and adds it to what the directory holds.
func (l *changeLog) close(dir *rundir.Dir) error {
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.err, l.file.Close())
	l.file = nil
	if dir != nil {
		dir.AddSum(rundir.ControlName, l.size, [32]byte(l.sum.Sum(nil)))
	}
	return err
}
