package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/inspect/otlp"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/store/rundir"
)

// exportTime is how often runs are looked at for requests to export.
const exportTime = 500 * time.Millisecond

// exporting exports the requests of live runs to OpenTelemetry, but of those that do it themselves. It is for one
// goroutine.
type exporting struct {
	server *Server
	all    map[string]*exported // by directory
	done   sync.WaitGroup
}

// exported is a run that was live when it was seen first.
type exported struct {
	exporter *otlp.Exporter // nil: it exports itself, or has ended
	sent     map[int64]bool // requests
	read     string         // its tables, as they were read last
}

// export exports until the server stops, and what is left then.
func (s *Server) export() {
	e := &exporting{server: s, all: map[string]*exported{}}
	tick := time.NewTicker(exportTime)
	defer tick.Stop()
	for last := false; ; {
		runs, err := s.runs.runs()
		for i := 0; i < len(runs) && err == nil; i++ {
			e.exportNew(&runs[i])
		}
		if last {
			break
		}
		select {
		case <-tick.C:
		case <-s.stopping:
			last = true
		}
	}
	for dir, f := range e.all {
		e.end(dir, f)
	}
	e.done.Wait()
}

// exportNew exports the requests of a run that are new.
func (e *exporting) exportNew(run *Run) {
	f, live := e.all[run.dir], run.State == resources.StateRunning
	if f != nil && f.exporter == nil || f == nil && !live {
		return
	}
	var now *resources.Status
	if live {
		now = reports{logs{e.server}}.now(*run)
	}
	if f == nil {
		if now == nil || now.Requests == nil { // it does not answer yet, or records none
			return
		}
		f = &exported{sent: map[int64]bool{}}
		e.all[run.dir] = f
		if now.Requests.Exported != nil {
			return
		}
		host := ""
		if name, err := os.Hostname(); err == nil { // a live run is one of this machine
			host = name
		}
		o := e.server.o.Export
		o.Run, o.Attributes = run.ID, [][2]string{{"service.name", "llama-server"}, {"service.instance.id", run.ID},
			{"host.name", host}, {"process.pid", fmt.Sprint(now.PID)}}
		f.exporter = otlp.Start(o)
	}
	f.add(run.dir)
	if now != nil && now.Requests != nil {
		f.exporter.Observe(otlp.Observation{Running: now.Requests.Running, Waiting: now.Requests.Waiting, KV: now.KV})
	}
	if !live {
		e.end(run.dir, f)
	}
}

// add exports the requests that its tables have, and did not have before.
func (f *exported) add(dir string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return // it was removed
	}
	tables := ""
	for _, file := range files {
		stem, _, _ := strings.Cut(rundir.RequestsName, ".")
		if info, err := file.Info(); err == nil && strings.HasPrefix(file.Name(), stem) {
			tables += fmt.Sprintln(file.Name(), info.Size())
		}
	}
	if tables == f.read {
		return
	}
	r, err := resources.OpenRequests(context.Background(), dir)
	if err != nil {
		return // a table that is being completed: at the next look
	}
	f.read = tables
	for i := range r.All {
		if q := &r.All[i]; !f.sent[q.ID] {
			f.sent[q.ID] = true
			f.exporter.Add(*q)
		}
	}
}

// end sends what is left of a run, in a goroutine, and forgets what was sent.
func (e *exporting) end(dir string, f *exported) {
	if f.exporter == nil {
		return
	}
	exporter := f.exporter
	f.exporter, f.sent = nil, nil
	e.done.Go(func() {
		c := exporter.Close()
		if remark := e.server.o.Export.Remark; remark != nil {
			remark(fmt.Sprintf("%s: %d spans sent, %d dropped", dir, c.Spans, c.Dropped()))
		}
	})
}
