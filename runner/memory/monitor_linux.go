package memory

import (
	"context"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/watch"
	"github.com/llamatap/llamatap/store/jsonl"
	"github.com/llamatap/llamatap/store/rundir"
)

// monitor writes process.jsonl.
type monitor struct {
	out    *jsonl.Writer
	cancel context.CancelFunc
	done   chan struct{}
}

// lines are those of a writer which counts what it loses.
type lines struct{ *jsonl.Writer }

func (l lines) Append(line []byte) error {
	l.Writer.Append(0, line)
	return nil
}

// startMonitor begins to tell what a process and this one take.
func startMonitor(dir *rundir.Dir, pid int, interval time.Duration, tell func(error)) (*monitor, error) {
	p, err := process.Open(process.Options{Model: func() int { return pid }, Interval: interval, Now: bpf.MonoNS})
	if err != nil {
		return nil, err
	}
	m := &monitor{done: make(chan struct{})}
	if m.out, err = jsonl.NewWriter(jsonl.Options{Create: dir.CreateLive, Name: resource.ProcessName}); err != nil {
		return nil, err
	}
	w := watch.New(interval, time.Now(), watch.Source{Name: "process", Collector: p, Lines: lines{m.out}})
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		_ = w.Run(ctx, 0, tell)
		_ = w.Close()
	}()
	return m, nil
}

// monitorUse is what metadata.json tells of process.jsonl.
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
	use := monitorUse{File: resource.ProcessName, Lines: stats.Lines, Bytes: stats.Bytes, Lost: stats.Lost}
	if err != nil {
		use.Error = err.Error()
	}
	return use
}
