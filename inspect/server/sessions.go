package server

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/store/rundir"
)

// LRI's routes. A session of its is a run of ours, and the session's id the run's.

// sessions answers GET /sessions: the runs that hold events.
func (l *listing) sessions(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r); err != nil {
		return err
	}
	runs, err := l.runs()
	if err != nil {
		return err
	}
	type session struct {
		ID   string `json:"session_id"`
		Path string `json:"log_file_path"`
	}
	list := []session{}
	for _, run := range runs {
		if run.Events {
			log := ""
			if run.dir != "" {
				log = filepath.Join(run.dir, rundir.EventsName)
			}
			list = append(list, session{run.ID, log})
		}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"active_sessions": list})
}

// health answers GET /health. A model is loaded while a run is live.
func (l *listing) health(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r); err != nil {
		return err
	}
	runs, err := l.runs()
	if err != nil {
		return err
	}
	loaded := false
	for _, run := range runs {
		loaded = loaded || run.State == resources.StateRunning
	}
	return writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "model_loaded": loaded})
}

// wholeLog answers GET /logs/{id}: all lines that there are, in base64.
func (s logs) wholeLog(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r); err != nil {
		return err
	}
	run, tail, err := s.openLog(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = r.Context().Done()
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(s.stream(w), 32<<10)
	fmt.Fprintf(out, `{"session_id":%s,"logs_b64":"`, quote(run.ID))
	encoder := base64.NewEncoder(base64.StdEncoding, out)
	for line, err := range tail.All() {
		if err != nil || s.isAbandoned(r) {
			return errors.Join(err, out.Flush()) // an answer that does not end as JSON is seen to be cut off
		}
		encoder.Write(line.Text)
		if _, err := encoder.Write([]byte("\n")); err != nil {
			return err
		}
	}
	encoder.Close()
	out.WriteString("\"}\n")
	return out.Flush()
}

// newLines answers GET /logs/{id}/stream: the lines after the first from_line, each in base64.
func (s logs) newLines(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "from_line"); err != nil {
		return err
	}
	from, err := fromLine(r)
	if err != nil {
		return err
	}
	run, tail, err := s.openLog(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = r.Context().Done()
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(s.stream(w), 32<<10)
	fmt.Fprintf(out, `{"session_id":%s,"from_line":%d,"new_lines_b64":[`, quote(run.ID), from)
	comma := ""
	for line, err := range tail.All() {
		if err != nil || s.isAbandoned(r) {
			return errors.Join(err, out.Flush())
		}
		if line.Number <= from {
			continue
		}
		out.WriteString(comma + `"`)
		out.WriteString(base64.StdEncoding.EncodeToString(line.Text))
		if err := out.WriteByte('"'); err != nil {
			return err
		}
		comma = ","
	}
	out.WriteString(`],"total_lines":` + strconv.FormatInt(tail.Lines(), 10) + "}\n")
	return out.Flush()
}

func quote(text string) []byte {
	quoted, _ := json.Marshal(text)
	return quoted
}
