package server

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
)

// levelOff is the level at which no events are recorded.
const levelOff = "off"

// getLevel answers GET /api/v1/level: how the run is, as llamatap ctl says it.
func (s control) getLevel(w http.ResponseWriter, r *http.Request) error {
	return s.command(w, r, Command{Command: "status"})
}

// putLevel answers PUT /api/v1/level: {"level": "VERBOSE"}, or {"command": "enable"}, disable or flush.
func (s control) putLevel(w http.ResponseWriter, r *http.Request) error {
	var c Command
	if err := readJSON(w, r, &c, true); err != nil {
		return err
	}
	if c.Command == "" && c.Level != "" {
		c.Command = "level"
	}
	switch {
	case !slices.Contains([]string{"level", "enable", "disable", "flush"}, c.Command):
		return fail(http.StatusBadRequest,
			`command %.40q: send {"level": "VERBOSE"}, or {"command": "enable"}, "disable" or "flush"`, c.Command)
	case c.Command != "level" && c.Level != "":
		return fail(http.StatusBadRequest, "%s takes no level", c.Command)
	case c.Command == "level" && strings.EqualFold(c.Level, levelOff):
		c.Level = levelOff
	case c.Command == "level":
		level, err := resource.ParseLevel(c.Level)
		if err != nil {
			return fail(http.StatusBadRequest, "level %.40q: use %s or %s", c.Level, "MINIMAL, DETAILED, VERBOSE",
				levelOff)
		}
		c.Level = level.String()
	}
	return s.command(w, r, c)
}

// command gives the run a command and passes its answer on.
func (s control) command(w http.ResponseWriter, r *http.Request, c Command) error {
	if err := checkQuery(r, "run"); err != nil {
		return err
	}
	run, err := s.runs.find(r.URL.Query().Get("run"))
	switch {
	case err != nil:
		return err
	case s.o.Control == nil:
		return fail(http.StatusNotImplemented,
			"runs cannot be given commands here: there is no way to their control sockets")
	case run.State != resources.StateRunning:
		return fail(http.StatusConflict, "run %s is %s: only a live run takes commands", run.ID, run.State)
	}
	answer, err := s.o.Control(run.dir, c)
	if err != nil {
		return fail(http.StatusConflict, "%w", err)
	}
	http.NewResponseController(w).SetWriteDeadline(s.deadline()) // the run may have taken its time
	return writeJSON(w, http.StatusOK, answer)
}

func (s *Server) deadline() time.Time { return time.Now().Add(s.o.Limits.WriteTime) }

// readJSON reads a request's body, one JSON object. With strict, keys that v does not have are errors.
func readJSON(w http.ResponseWriter, r *http.Request, v any, strict bool) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return fail(http.StatusUnsupportedMediaType,
			"the body must be JSON: send it with Content-Type: application/json")
	}
	d := json.NewDecoder(r.Body)
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows the object")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fail(http.StatusRequestEntityTooLarge, "the body is too large: %d bytes are the most", large.Limit)
	case err != nil:
		return fail(http.StatusBadRequest, "the body is not what belongs here: %w", err)
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // answering may take longer than reading
	return nil
}
