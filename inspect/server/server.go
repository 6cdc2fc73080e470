package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxReports is how many logs are added up at once: each takes a processor and some memory.
const maxReports = 2

// Server answers requests about runs. Its methods may be called from several goroutines.
type Server struct {
	o        Options
	runs     listing
	hosts    hosts // others, whose runs are shown as well
	asking   asking
	metrics  *metrics
	lives    lives
	links    links
	handler  http.Handler
	follows  chan struct{} // one element per stream of a growing log
	reports  chan struct{} // one element per log that is added up
	running  chan struct{} // one element while a prompt is run
	stopping chan struct{} // closed when streams are to end
	stop     sync.Once
}

// New makes a server of a run directory or a folder of runs, which must be there.
func New(o Options) (*Server, error) {
	if o.Dir == "" && o.Stored == nil && len(o.Hosts) == 0 {
		return nil, errNoDir
	}
	if o.Token == "" && !o.NoToken {
		return nil, errNoToken
	}
	for _, origin := range o.Origins {
		if err := CheckOrigin(origin); err != nil {
			return nil, err
		}
	}
	o.Limits = o.Limits.orDefault()
	if o.Wait == nil {
		o.Wait = waitPollTime
	}
	s := &Server{o: o, runs: listing{dir: o.Dir, stored: o.Stored, live: o.Live},
		follows: make(chan struct{}, o.Limits.Follows), reports: make(chan struct{}, maxReports),
		running: make(chan struct{}, 1), stopping: make(chan struct{})}
	if _, err := s.runs.runs(); err != nil {
		return nil, err
	}
	s.lives.all, s.lives.skim = map[string]*life{}, true
	s.links, s.metrics = newLinks(), newMetrics(s)
	var err error
	if s.hosts, err = newHosts(o.Hosts, &s.links); err != nil {
		return nil, err
	}
	if o.Control != nil {
		s.lives.ask = func(dir string) (json.RawMessage, error) { return s.asking.status(dir, o.Control), nil }
	}
	s.handler = guarded{s}.guard(s.routes())
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers requests that come by l, until ctx is done: then streams end, requests get StopTime to end, and l
// is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	limits := s.o.Limits
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: limits.ReadTime, IdleTimeout: limits.IdleTime, MaxHeaderBytes: limits.Header,
		ErrorLog:    quiet,
		ConnContext: withConnection,
	}
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(&limitedListener{l, &connections{limit: limits.Connections}})
	}()
	var exports sync.WaitGroup
	if s.o.Export.Traces != nil || s.o.Export.Metrics != nil {
		exports.Go(s.export)
	}
	defer exports.Wait()
	defer s.stop.Do(func() { close(s.stopping) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.stop.Do(func() { close(s.stopping) })
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.StopTime)
	defer cancel()
	if web.Shutdown(grace) != nil { // somebody does not end
		web.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func waitPollTime(ctx context.Context) {
	timer := time.NewTimer(PollTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// route is what answers a method of a path. An error that it returns is written as an answer, if none was begun.
type route struct {
	pattern string
	answer  func(http.ResponseWriter, *http.Request) error
}

// The handlers, by what they serve.
type (
	logs    struct{ *Server }
	reports struct{ logs }
	prompts struct{ logs }
	control struct{ *Server }
	guarded struct{ *Server } // what every request passes
)

func (s *Server) table() []route {
	l, c := logs{s}, control{s}
	r := reports{l}
	return []route{
		{"GET /{$}", s.index},
		{"GET /healthz", s.runs.healthz},
		{"GET /api/v1/runs", s.listRuns},
		{"GET /api/v1/resource-logs", l.resourceLogs},
		{"GET /api/v1/summary", r.summary},
		{"GET /api/v1/kv", r.kv},
		{"GET /api/v1/live", l.live},
		{"GET /runs/{id}/report", r.html},
		{"POST /runs/{id}/report", r.link},
		{"GET /api/v1/level", c.getLevel},
		{"PUT /api/v1/level", c.putLevel},
		{"POST /log-monitoring", prompts{l}.logMonitoring}, // from here on LRI's
		{"GET /logs/{id}", l.wholeLog},
		{"GET /logs/{id}/stream", l.newLines},
		{"GET /sessions", s.runs.sessions},
		{"GET /health", s.runs.health},
		{"GET /metrics", s.metrics.answer}, // for Prometheus
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.table() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			if h := s.hosts.hostOf(req); h != nil {
				s.pass(w, req, h)
				return
			}
			began := &begun{ResponseWriter: w}
			if err := r.answer(began, req); err != nil && !began.yes {
				writeError(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeError(w, s.noRoute(mux, r)) })
	return mux
}

// index answers GET /: what there is, as text, or as a page to a browser.
func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	if wantsPage(r) {
		return writePage(w)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "llamatap serve\n\n"
	for _, r := range s.table() {
		text += strings.TrimSuffix(r.pattern, "{$}") + "\n"
	}
	_, err := w.Write([]byte(text + "\ndocs/SERVE.md describes each of them.\n"))
	return err
}
