package server

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/llamatap/llamatap/inspect/resources"
)

// The trailers of an answer with lines: where a client continues, and how many lines are not JSON and were left out.
const (
	nextLineHeader = "Llamatap-Next-Line"
	badLinesHeader = "Llamatap-Bad-Lines"
	runHeader      = "Llamatap-Run"
)

// resourceLogs answers GET /api/v1/resource-logs: events as lines of JSON, as the run wrote them.
func (s logs) resourceLogs(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "run", "from_line", "follow", "event", "layer"); err != nil {
		return err
	}
	from, err := fromLine(r)
	if err != nil {
		return err
	}
	follow, err := flagOf(r, "follow")
	if err != nil {
		return err
	}
	wanted, err := newFilter(r)
	if err != nil {
		return err
	}
	run, tail, err := s.openLog(r.URL.Query().Get("run"))
	if err != nil {
		return err
	}
	defer tail.Close()
	tail.Done = r.Context().Done()
	if follow {
		release, err := s.follow()
		if err != nil {
			return err
		}
		defer release()
	}
	header := w.Header()
	header.Set("Content-Type", "application/x-ndjson")
	header.Set(runHeader, run.ID)
	header.Set("Trailer", nextLineHeader+", "+badLinesHeader)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	bad, err := s.copyLines(r, s.stream(w), tail, from, follow, wanted)
	header.Set(nextLineHeader, strconv.FormatInt(tail.Lines(), 10))
	header.Set(badLinesHeader, strconv.FormatInt(bad, 10))
	return err
}

// copyLines writes the lines after the first from that the filter takes; with follow, until the log ends, the
// client is gone, or the server stops. A line whose end is not written yet is not.
func (s logs) copyLines(r *http.Request, out *stream, tail *resources.Tail, from int64, follow bool,
	wanted filter) (bad int64, err error) {
	buffered := bufio.NewWriterSize(out, 32<<10)
	for {
		line, err := tail.Next()
		switch {
		case errors.Is(err, resources.ErrWaiting) && follow:
			if err := errors.Join(buffered.Flush(), out.flush()); err != nil {
				return bad, err
			}
			s.o.Wait(r.Context())
			if s.isAbandoned(r) {
				return bad, nil
			}
			continue
		case errors.Is(err, resources.ErrWaiting), errors.Is(err, io.EOF):
			return bad, buffered.Flush()
		case err != nil:
			return bad, errors.Join(err, buffered.Flush())
		case line.Number%1024 == 0 && s.isAbandoned(r):
			return bad, buffered.Flush()
		case line.Number <= from:
			continue
		}
		take, valid := wanted.takes(line.Text)
		if line.Err != nil || !valid {
			bad++
			continue
		}
		if !take {
			continue
		}
		buffered.Write(line.Text)
		if err := buffered.WriteByte('\n'); err != nil {
			return bad, err
		}
	}
}

// isAbandoned reports whether nobody waits for more: the client is gone, or the server stops.
func (s logs) isAbandoned(r *http.Request) bool {
	select {
	case <-r.Context().Done():
		return true
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// openLog finds a run by its id and opens its log.
func (s logs) openLog(id string) (Run, *resources.Tail, error) {
	run, err := s.runs.find(id)
	if err != nil {
		return run, nil, err
	}
	tail, err := resources.OpenTail(run.dir)
	if errors.Is(err, resources.ErrNoLog) {
		return run, nil, fail(http.StatusNotFound,
			"run %s holds no resource events: record a run with --tap-resource-level MINIMAL", run.ID)
	}
	return run, tail, err
}
