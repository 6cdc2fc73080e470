package memory

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
)

// mark answers a request for a marker. Its time is the client's, but not before what is written already.
func (r *recorder) mark(q control.Request) control.Answer {
	if q.Command != control.CommandMark {
		return control.Answer{Error: fmt.Sprintf("a recording of llamatap memory record takes the command %s alone",
			control.CommandMark)}
	}
	m, err := memtrace.NewMark(q.Name)
	if err != nil {
		return control.Answer{Error: err.Error()}
	}
	m.MonoNS = bpf.MonoNS()
	if q.MonoNS > 0 {
		m.MonoNS = min(m.MonoNS, q.MonoNS)
	}
	m.MonoNS = max(m.MonoNS, r.written+1)
	if n := len(r.phases.marks); n > 0 {
		m.MonoNS = max(m.MonoNS, r.phases.marks[n-1].MonoNS)
	}
	m.TimeNS = m.MonoNS + r.offset
	if err := r.phases.set(r.dir.CreateLive, m); err != nil {
		return control.Answer{Error: err.Error()}
	}
	return control.Answer{OK: true, Mark: &m}
}

// Mark sets a marker in the recording of path: a run directory, or a folder in whose newest live recording it is
// set. It returns the run's directory.
func Mark(path, name string) (dir string, m memtrace.Mark, err error) {
	if m, err = memtrace.NewMark(name); err != nil {
		return "", m, err
	}
	request := control.Request{Command: control.CommandMark, Name: name, MonoNS: bpf.MonoNS()}
	runs := rundir.Find(path)
	if len(runs) == 0 {
		runs = []string{path}
	}
	var failed error
	for _, dir := range runs {
		a, err := control.Ask(dir, request)
		if err == nil && a.OK && a.Mark != nil {
			return dir, *a.Mark, nil
		}
		if err == nil { // a run of another kind, or one that takes no more markers
			err = fmt.Errorf("%s: %s", dir, a.Error)
		}
		if failed == nil && !errors.Is(err, control.ErrNoRun) && (len(runs) == 1 || !errors.Is(err, control.ErrEnded)) {
			failed = err
		}
	}
	if failed == nil {
		failed = fmt.Errorf("%s: no live recording is here or below: give that of 'llamatap memory record' with --run",
			filepath.Clean(path))
	}
	return "", m, failed
}
