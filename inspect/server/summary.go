package server

import (
	"encoding/json"
	"net/http"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/kvcache"
)

// summary answers GET /api/v1/summary: what 'llamatap resource summary RUN --json' says.
func (s reports) summary(w http.ResponseWriter, r *http.Request) error {
	report, err := s.report(r)
	if err != nil {
		return err
	}
	return writeJSON(s.stream(w), http.StatusOK, report)
}

// caches is what GET /api/v1/kv answers. What there is no evidence of is absent.
type caches struct {
	Run    string          `json:"run"`
	State  resources.State `json:"state"`
	Caches any             `json:"caches,omitempty"` // as the run's events report
	// Now is how the caches of a live run are used, as its collector follows their cells; see kvcache.Snapshot.
	Now *kvcache.Snapshot `json:"now,omitempty"`
	// Lives is what the table of blocks holds of a run that has ended.
	Lives *resources.KV `json:"lives,omitempty"`
}

// kv answers GET /api/v1/kv: how the run's KV caches are used.
func (s reports) kv(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "run"); err != nil {
		return err
	}
	run, err := s.runs.find(r.URL.Query().Get("run"))
	if err != nil {
		return err
	}
	answer := caches{Run: run.ID, State: run.State}
	if now := s.now(run); now != nil {
		answer.Now = now.KV
	}
	if run.Events {
		report, err := s.report(r)
		if err != nil {
			return err
		}
		if answer.Caches = report.Caches; len(report.Caches) == 0 {
			answer.Caches = nil
		}
	}
	if run.State == resources.StateSealed || run.State == resources.StateDamaged {
		if lives, err := resources.OpenKV(r.Context(), run.dir, livesPoints, nil); err == nil {
			lives.Path = run.ID
			answer.Lives = lives
		}
	}
	if answer.Now == nil && answer.Lives == nil && !run.Events {
		return fail(http.StatusNotFound, "run %s has no record of its KV caches: record a run with --tap-kv", run.ID)
	}
	return writeJSON(s.stream(w), http.StatusOK, answer)
}

// livesPoints is how many points of the timeline are reported.
const livesPoints = 120

// now asks the collector of a live run; nil where it does not answer soon.
func (s reports) now(run Run) *resources.Status {
	if run.State != resources.StateRunning || s.o.Control == nil {
		return nil
	}
	var status resources.Status
	if json.Unmarshal(s.asking.status(run.dir, s.o.Control), &status) != nil {
		return nil
	}
	return &status
}

// acquire waits until a log may be read as a whole; done lets the next one.
func (s reports) acquire(r *http.Request) (done func(), err error) {
	select {
	case s.reports <- struct{}{}:
		return func() { <-s.reports }, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-s.stopping:
		return nil, fail(http.StatusServiceUnavailable, "the server stops")
	}
}

// report adds up the events of the run that a request names. Reading a large log takes its time; how many do at
// once is bounded.
func (s reports) report(r *http.Request) (*resources.Report, error) {
	if err := checkQuery(r, "run"); err != nil {
		return nil, err
	}
	run, tail, err := s.openLog(r.URL.Query().Get("run"))
	if err != nil {
		return nil, err
	}
	tail.Close()
	done, err := s.acquire(r)
	if err != nil {
		return nil, err
	}
	defer done()
	report, err := resources.Summarize(r.Context(), run.dir, nil, nil)
	if err != nil {
		return nil, err
	}
	report.Path = run.ID
	return report, nil
}
