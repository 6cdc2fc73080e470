package server

import "net/http"

// healthz answers GET /healthz: that the server answers, and its folder can be read. It needs no token, and says
// nothing of runs.
func (l *listing) healthz(w http.ResponseWriter, _ *http.Request) error {
	if _, err := l.runs(); err != nil {
		return fail(http.StatusServiceUnavailable, "the folder that is served cannot be read")
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
