//go:build linux

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// watching asks collectors once an interval, in a goroutine of its own. A nil one does not.
type watching struct {
	watch  *bpf.Watch
	cancel context.CancelFunc
	done   chan struct{}
}

// startWatching begins. what names the collectors where one of them fails; the others continue. Drafts wait until known
// says that what the run did up to a time is known; nil: they do not wait.
func startWatching(what string, interval time.Duration, known func(ns int64) bool,
	sources ...bpf.Source) *watching {
	w := &watching{watch: bpf.NewWatch(interval, time.Now(), sources...), done: make(chan struct{})}
	if known != nil {
		w.watch.Hold(known)
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(w.done)
		_ = w.watch.Run(ctx, 0, func(err error) {
			fmt.Fprintf(present.Err, "llamatap: %s: %v; the rest continues\n", what, err)
		})
	}()
	return w
}

// stop takes the last snapshots. It may be called twice.
func (w *watching) stop() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// monitor records once an interval what the model's process and this one take, beside recorders of memory accesses. A
// nil one records nothing.
type monitor struct {
	lines    *hostLines
	watching *watching
}

// startMonitor begins, if a recorder of memory accesses was asked for. pid is the model's process.
func startMonitor(tap *config.Tap, pid func() int) *monitor {
	if !tap.MonitorsProcess() {
		return nil
	}
	p, err := process.Open(process.Options{Model: pid, Interval: tap.ProcessInterval, Now: stream.MonoNS})
	if err != nil {
		fmt.Fprintf(present.Err, "llamatap: %s is left out: %v\n", rundir.ProcessName, err)
		return nil
	}
	m := &monitor{lines: &hostLines{name: rundir.ProcessName}}
	m.watching = startWatching(rundir.ProcessName, tap.ProcessInterval, nil,
		bpf.Source{Name: "process", Collector: p, Lines: m.lines})
	return m
}

// stop takes the last snapshot and ends the recording.
func (m *monitor) stop() {
	if m != nil {
		m.watching.stop()
	}
}

// Close ends the recording and the file. It may be called twice.
func (m *monitor) Close() error {
	if m == nil {
		return nil
	}
	m.stop()
	_ = m.watching.watch.Close() // it has only read
	return m.lines.close()
}

// use is what metadata.json says of the file.
func (m *monitor) use() hostFile { return m.lines.use() }
