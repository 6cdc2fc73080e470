package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"
)

// failure is an error with the status that it is answered with.
type failure struct {
	status int
	error
}

func fail(status int, format string, args ...any) error {
	return failure{status, fmt.Errorf(format, args...)}
}

// writeError answers with {"error": cause and remedy}.
func writeError(w http.ResponseWriter, err error) {
	f := failure{http.StatusInternalServerError, err}
	errors.As(err, &f)
	writeJSON(w, f.status, map[string]string{"error": f.error.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(text, '\n'))
	return err
}

// begun notes whether an answer was begun.
type begun struct {
	http.ResponseWriter
	yes bool
}

func (b *begun) WriteHeader(status int) { b.yes = true; b.ResponseWriter.WriteHeader(status) }

func (b *begun) Write(p []byte) (int, error) { b.yes = true; return b.ResponseWriter.Write(p) }

// Unwrap lets http.ResponseController through.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// noRoute returns the error for a path without a route, or without one for the method.
func (s *Server) noRoute(mux *http.ServeMux, r *http.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		return fail(http.StatusMethodNotAllowed, "%.16q is not for this path: use %s", r.Method,
			strings.Join(allowed, " or "))
	}
	var paths []string
	for _, route := range s.table() {
		_, path, _ := strings.Cut(route.pattern, " ")
		if path = strings.TrimSuffix(path, "{$}"); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return fail(http.StatusNotFound, "there is nothing at %.80q: there are %s", r.URL.Path,
		strings.Join(paths, ", "))
}

// stream writes an answer of any length: a client that does not take it in time is cut.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration
}

func (s *Server) stream(w http.ResponseWriter) *stream {
	return &stream{w, http.NewResponseController(w), s.o.Limits.WriteTime}
}

// Write takes at most the time that there is. Writers that know no time limit, as those of tests, have none.
func (t *stream) Write(p []byte) (int, error) {
	t.control.SetWriteDeadline(time.Now().Add(t.time))
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController through.
func (t *stream) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *stream) flush() error {
	t.control.SetWriteDeadline(time.Now().Add(t.time))
	if err := t.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// quiet takes what net/http says about clients that break off.
var quiet = log.New(io.Discard, "", 0)
