package server

import (
	"net/http"
	"strings"
)

// healthz answers GET /healthz: that the server answers, and its folder can be read. It needs no token, and says
// nothing of runs.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	if _, err := s.runs.all(); err != nil {
		return fail(http.StatusServiceUnavailable, "the folder that is served cannot be read")
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// index answers GET /: what there is, as text, or as a page to a browser.
func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	if wantsPage(r) {
		writePage(w, http.StatusOK)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "llamatap serve\n\n"
	for _, r := range s.table() {
		text += strings.TrimSuffix(r.pattern, "{$}") + "\n"
	}
	_, err := w.Write([]byte(text + "GET /metrics\n\ndocs/SERVE.md describes each of them.\n"))
	return err
}
