//go:build linux

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/watch"
	"github.com/llamatap/llamatap/store/rundir"
)

// monitor records once an interval what the model's process and this one take. It runs beside recorders of memory
// accesses. A nil one records nothing.
type monitor struct {
	lines  *hostLines
	cancel context.CancelFunc
	done   chan struct{}
}

// startMonitor begins, if a recorder of memory accesses was asked for. pid is the model's process.
func startMonitor(tap *config.Tap, pid func() int) *monitor {
	if !tap.MonitorsProcess() {
		return nil
	}
	p, err := process.Open(process.Options{Model: pid, Interval: tap.ProcessInterval, Now: monotonic})
	if err != nil {
		fmt.Fprintf(terminal.Err, "llamatap: %s is left out: %v\n", rundir.ProcessName, err)
		return nil
	}
	m := &monitor{lines: &hostLines{name: rundir.ProcessName}, done: make(chan struct{})}
	w := watch.New(tap.ProcessInterval, time.Now(), watch.Source{Name: "process", Collector: p, Lines: m.lines})
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		_ = w.Run(ctx, 0, func(err error) {
			fmt.Fprintf(terminal.Err, "llamatap: %s: %v; the rest goes on\n", rundir.ProcessName, err)
		})
		_ = w.Close()
	}()
	return m
}

// stop takes the last snapshot and ends the recording.
func (m *monitor) stop() {
	if m != nil {
		m.cancel()
		<-m.done
	}
}

// Close ends the recording and the file.
func (m *monitor) Close() error {
	if m == nil {
		return nil
	}
	m.stop()
	return m.lines.close()
}

// use is what metadata.json says of the file.
func (m *monitor) use() hostFile {
	stats := m.lines.stats()
	return hostFile{File: m.lines.name, Lines: stats.Lines, Bytes: stats.Bytes, Lost: stats.Lost}
}
