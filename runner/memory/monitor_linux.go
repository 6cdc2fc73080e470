package memory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/rundir"
)

// monitor writes process.jsonl.
type monitor struct {
	out    *rundir.LineWriter
	cancel context.CancelFunc
	done   chan struct{}
	family atomic.Pointer[[]int] // the processes that run, as far as is known
}

// follow sets the processes that run now, for the monitor's next lines.
func (m *monitor) follow(pids []int) { m.family.Store(&pids) }

func (m *monitor) children() []int {
	if pids := m.family.Load(); pids != nil {
		return *pids
	}
	return nil
}

// lines are those of a writer which counts what it loses.
type lines struct{ *rundir.LineWriter }

func (l lines) Append(line []byte) error {
	l.LineWriter.Append(0, line)
	return nil
}

// startMonitor begins to measure a process, its children unless alone is set, and this process.
func startMonitor(dir *rundir.Dir, pid int, alone bool, interval time.Duration, warn func(error)) (*monitor, error) {
	m := &monitor{done: make(chan struct{})}
	o := process.Options{Model: func() int { return pid }, Interval: interval, Now: bpf.MonoNS}
	if !alone {
		o.Children = m.children
	}
	p, err := process.Open(o)
	if err != nil {
		return nil, err
	}
	if m.out, err = rundir.NewLineWriter(
		rundir.LineOptions{Create: dir.CreateLive, Name: rundir.ProcessName}); err != nil {
		return nil, err
	}
	w := bpf.NewWatch(interval, time.Now(), bpf.Source{Name: "process", Collector: p, Lines: lines{m.out}})
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		_ = w.Run(ctx, 0, warn)
		_ = w.Close()
	}()
	return m, nil
}

// monitorUse is the entry for process.jsonl in metadata.json.
type monitorUse struct {
	File  string            `json:"file"`
	Lines uint64            `json:"lines"`
	Bytes int64             `json:"bytes"`
	Lost  map[string]uint64 `json:"lost,omitempty"` // lines, by cause
	Error string            `json:"error,omitempty"`
}

// close takes the last snapshot and ends the file. It may be called twice.
func (m *monitor) close() monitorUse {
	if m == nil {
		return monitorUse{}
	}
	m.cancel()
	<-m.done
	err := m.out.Close()
	stats := m.out.Stats()
	use := monitorUse{File: rundir.ProcessName, Lines: stats.Lines, Bytes: stats.Bytes, Lost: stats.Lost}
	if err != nil {
		use.Error = err.Error()
	}
	return use
}
