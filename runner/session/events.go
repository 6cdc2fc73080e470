//go:build linux

package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/oplog"
	"github.com/llamatap/llamatap/resource/sched"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// events is the recorder of resource events.
type events struct {
	*oplog.Recorder
	devices *devices // nil: there are none to be sampled
}

// Close ends the session and its file.
func (e *events) Close() error {
	e.devices.end()
	return e.Recorder.Close()
}

// newEvents makes the recorder. Its file can be read while it is written. unwritten is how many bytes of lines are not
// in files yet.
func newEvents(run *run, devices *devices, unwritten *atomic.Int64) (*events, error) {
	tap := run.o.Tap
	level, err := resource.ParseLevel(tap.ResourceLevel)
	if err != nil {
		return nil, err
	}
	also, err := appendTo(tap.ResourcePath)
	if err != nil {
		return nil, err
	}
	create := func(name string) (io.WriteCloser, error) {
		file, err := run.dir.CreateLive(name)
		if err != nil || also == nil {
			return file, err
		}
		return &twice{WriteCloser: file, other: also}, nil
	}
	e := &events{devices: devices}
	var take func(*oplog.Readings)
	if devices != nil {
		take = devices.appendReadings
	}
	var short string // of memory; "": not known
	var asked time.Time
	pressure := func() string {
		if now := time.Now(); now.Sub(asked) >= pressureEvery {
			short, asked = "", now
			if m, err := sched.ReadMemoryPressure(os.DirFS("/"), run.pid); err == nil {
				short = m.Level()
			}
		}
		return short
	}
	e.Recorder, err = oplog.NewRecorder(oplog.Options{
		Level: level, Lines: rundir.LineOptions{Create: create, Name: rundir.EventsName,
			PartBytes: int64(tap.MaxDisk.Parts(tap.ResourceRotate)), Buffered: unwritten},
		PerSecond: tap.ResourceRate,
		Now:       stream.MonoNS, StartNS: run.clock.MonoNS, UnixOffset: run.unixOffset(),
		SessionID: run.dir.ID(), Text: run.speller.text,
		Roofline: roofline(), Pressure: pressure, Legacy: tap.Legacy,
		Devices: take,
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// pressureEvery is how long an answer of pressure counts: the kernel averages over ten seconds, and a token may
// take less than a millisecond.
const pressureEvery = 100 * time.Millisecond

// roofline is what was measured on this machine, nil where nothing was.
func roofline() *resource.Roofline {
	path, err := machine.RooflineFile()
	if err != nil {
		return nil
	}
	r, err := machine.LoadRoofline(path)
	if err != nil {
		if !errors.Is(err, machine.ErrNoRoofline) {
			fmt.Fprintf(present.Err, "llamatap: %v\n", err)
		}
		return nil
	}
	return &resource.Roofline{GFLOPsPerS: r.GFLOPsPerS, GBPerS: r.GBPerS}
}

// appendTo opens the file that the events are appended to as well, nil where none was asked for.
func appendTo(path string) (io.Writer, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the log of resource events: %w; choose another file with --tap-resource-path, or "+
			"LLAMA_RESOURCE_LOG_PATH", err)
	}
	return file, nil
}

// twice writes to a file of the run and, as far as that goes, to another one.
type twice struct {
	io.WriteCloser
	other io.Writer
}

// Write writes to both. The other file's first error is printed, and ends it.
func (t *twice) Write(p []byte) (int, error) {
	n, err := t.WriteCloser.Write(p)
	if t.other != nil {
		if _, failed := t.other.Write(p[:n]); failed != nil {
			fmt.Fprintf(present.Err, "llamatap: %v; what follows is in the run directory alone\n", failed)
			t.other = nil
		}
	}
	return n, err
}

// summaryText returns the line of the summary: events written and lost.
func (e *events) summaryText() string {
	use := e.use()
	text := fmt.Sprintf("events    %d, %s", use.Events, present.Bytes(uint64(use.Bytes)))
	var lost uint64
	causes := ""
	for _, cause := range []string{rundir.CauseRate, rundir.CauseFull, rundir.CauseWrite} {
		if n := use.Lost[cause]; n > 0 {
			lost += n
			causes += fmt.Sprintf(" %s %d", cause, n)
		}
	}
	if lost > 0 {
		text += fmt.Sprintf(", LOST %d:%s", lost, causes)
	}
	return text
}

// energyWords say what devices used in each phase.
func (e *events) energyWords() (text string) {
	for _, line := range resource.EnergyText(e.Energy) {
		text += "energy    " + line + "\n"
	}
	return text
}

// eventsUse is what metadata.json says of events.
type eventsUse struct {
	Events uint64            `json:"events"` // written
	Bytes  int64             `json:"bytes"`
	Files  int               `json:"files"`
	Lost   map[string]uint64 `json:"lost,omitempty"` // by cause
}

func (e *events) use() eventsUse {
	stats := e.Stats()
	use := eventsUse{Events: stats.Lines, Bytes: stats.Bytes, Files: stats.Parts}
	for cause, n := range stats.Lost {
		use.Events -= n
		if n > 0 {
			if use.Lost == nil {
				use.Lost = map[string]uint64{}
			}
			use.Lost[cause] = n
		}
	}
	return use
}
