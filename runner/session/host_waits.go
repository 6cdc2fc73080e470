//go:build linux

package session

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/filemap"
	"github.com/llamatap/llamatap/store/rundir"
)

// waits records what the model's threads wait for on files, and hears of graphs as a recorder beside that of
// tensors. A nil one records nothing.
type waits struct {
	*filemap.Follower
	collector *filemap.Collector
}

// openWaits begins to record waits.
func (h *hostSide) openWaits(target bpf.Target, details bool) error {
	w, lines := &waits{}, &hostLines{name: rundir.WaitsName}
	o := filemap.Options{Target: target, Line: func(l *resource.WaitLine) error { return lines.encode(l) }}
	files := []*hostLines{lines}
	if details {
		faults := &hostLines{name: rundir.FaultsName}
		o.Fault = func(l *resource.FaultLine) error { return faults.encode(l) }
		files = append(files, faults)
	}
	var err error
	if w.collector, err = filemap.Open(o); err != nil {
		return err
	}
	w.Follower = filemap.NewFollower(w.collector.Recorder(), func(path string) {
		if err := w.collector.AddPath(path); err != nil {
			fmt.Fprintf(present.Err, "llamatap: --tap-host waits: what others read of the model's file is not "+
				"seen: %v\n", err)
		}
	})
	h.waits = w
	h.lines = append(h.lines, files...)
	h.follow = append(h.follow, w.collector)
	return nil
}

// tapLag is how long the tap may take to put what it saw into the queue.
const tapLag = 5 * time.Millisecond

// reported notes that the tap's queue has been read up to a time: what was waited for before can be put to the graphs.
func (w *waits) reported(mono int64) {
	if w != nil && mono > 0 {
		w.collector.Recorder().ReportedUpTo(mono - int64(tapLag))
	}
}

// encode writes a line.
func (l *hostLines) encode(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.Append(text)
}

// Close ends the recording: the total is its last line. The files are closed with those of the other collectors.
func (w *waits) Close() error {
	if w == nil || w.collector == nil {
		return nil
	}
	return w.collector.Close()
}
