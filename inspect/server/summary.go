package server

import (
	"net/http"

	"github.com/llamatap/llamatap/inspect/resources"
)

// summary answers GET /api/v1/summary: what 'llamatap resource summary RUN -o json' says.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) error {
	report, err := s.report(r)
	if err != nil {
		return err
	}
	return writeJSON(s.stream(w), http.StatusOK, report)
}

// kv answers GET /api/v1/kv: how the run's KV caches are used, as its events tell.
func (s *Server) kv(w http.ResponseWriter, r *http.Request) error {
	report, err := s.report(r)
	if err != nil {
		return err
	}
	return writeJSON(s.stream(w), http.StatusOK, map[string]any{"run": report.Path, "state": report.State, "caches": report.Caches})
}

// report adds up the events of the run that a request names. Reading a large log takes its time; how many do at once is bounded.
func (s *Server) report(r *http.Request) (*resources.Report, error) {
	if err := checkQuery(r, "run"); err != nil {
		return nil, err
	}
	run, tail, err := s.openLog(r.URL.Query().Get("run"))
	if err != nil {
		return nil, err
	}
	tail.Close()
	select {
	case s.reports <- struct{}{}:
		defer func() { <-s.reports }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-s.stopping:
		return nil, fail(http.StatusServiceUnavailable, "the server stops")
	}
	report, err := resources.Summarize(run.dir, nil)
	if err != nil {
		return nil, err
	}
	report.Path = run.ID
	return report, nil
}
