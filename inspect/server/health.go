package server

import "net/http"

// healthz answers GET /healthz: that the server answers, and its folder can be read. It needs no token, and tells nothing of runs.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	if _, err := s.runs.all(); err != nil {
		return fail(http.StatusServiceUnavailable, "the folder that is served cannot be read")
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// index answers GET /: what there is.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "llamatap serve\n\n"
	for _, r := range s.table() {
		text += r.pattern + "\n"
	}
	_, err := w.Write([]byte(text + "GET /metrics\n\ndocs/SERVE.md says what each of them tells.\n"))
	return err
}
