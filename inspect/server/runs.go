package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/store/rundir"
)

// Run is a run directory.
type Run struct {
	ID    string          `json:"run"`            // the directory's name, after HOST: where it is another host's
	Host  string          `json:"host,omitempty"` // whose it is; "": this one's
	Model string          `json:"model"`          // the name of the folder that it lies in
	State resources.State `json:"state"`
	// Events reports whether it holds resource events, LogBytes how many bytes of them there are so far.
	Events   bool  `json:"events"`
	LogBytes int64 `json:"log_bytes"`

	dir string // "": of a stored run, which is not copied yet
}

// listing finds runs. Names that clients give are looked up in it, and never become part of a path.
type listing struct {
	dir    string
	stored Stored
	live   bool

	mu   sync.Mutex
	last string // the run that was live when somebody looked last
}

// maxRuns bounds how many runs are listed; the newest are.
const maxRuns = 10000

// runs lists the runs that are served, newest first.
func (l *listing) runs() ([]Run, error) {
	if l.stored != nil {
		runs, err := l.stored.Runs()
		return runs[:min(len(runs), maxRuns)], err
	}
	if l.dir == "" { // other hosts' runs alone
		return nil, nil
	}
	if _, err := os.ReadDir(l.dir); err != nil {
		return nil, fmt.Errorf("serve %s: %w: give a run directory or a folder of runs", l.dir, err)
	}
	if IsRun(l.dir) {
		absPath, err := filepath.Abs(l.dir)
		if err != nil {
			return nil, err
		}
		return []Run{describeRun(l.dir, filepath.Base(absPath), filepath.Base(filepath.Dir(absPath)))}, nil
	}
	var runs []Run
	for _, p := range rundir.Find(l.dir) {
		runs = append(runs, Run{ID: filepath.Base(p), Model: filepath.Base(filepath.Dir(p)), dir: p})
	}
	runs = slices.CompactFunc(runs, func(a, b Run) bool { return a.ID == b.ID }) // a copy of a run is that run
	runs = runs[:min(len(runs), maxRuns)]
	for i, r := range runs {
		runs[i] = describeRun(r.dir, r.ID, r.Model)
	}
	if l.live {
		return l.onlyLive(runs), nil
	}
	return runs, nil
}

// onlyLive keeps the newest live run, of those that hold events if there are any, or the one that was it before.
func (l *listing) onlyLive(runs []Run) []Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, events := range []bool{true, false} {
		i := slices.IndexFunc(runs, func(r Run) bool { return r.State == resources.StateRunning && r.Events == events })
		if i >= 0 {
			l.last = runs[i].ID
			break
		}
	}
	return slices.DeleteFunc(runs, func(r Run) bool { return r.ID != l.last })
}

// IsRun reports whether a folder is a run directory itself.
func IsRun(dir string) bool {
	for _, name := range []string{rundir.ManifestName, rundir.MetadataName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return resources.HasLog(dir)
}

func describeRun(dir, id, model string) Run {
	return Run{ID: id, Model: model, State: resources.StateOf(dir), Events: resources.HasLog(dir),
		LogBytes: resources.LogSize(dir), dir: dir}
}

// find returns the run of an id, or, for "", the newest live one that holds events, else the newest that holds some. A
// stored one is copied.
func (l *listing) find(id string) (Run, error) {
	run, err := l.lookUp(id)
	if err != nil || run.dir != "" {
		return run, err
	}
	if run.dir, err = l.stored.Fetch(run.ID); err != nil {
		return Run{}, fail(http.StatusBadGateway, "%w", err)
	}
	return run, nil
}

func (l *listing) lookUp(id string) (Run, error) {
	runs, err := l.runs()
	if err != nil {
		return Run{}, fail(http.StatusInternalServerError, "%w", err)
	}
	if id != "" {
		if i := slices.IndexFunc(runs, func(r Run) bool { return r.ID == id }); i >= 0 {
			return runs[i], nil
		}
		return Run{}, fail(http.StatusNotFound, "there is no run %.120q: /api/v1/runs lists those that there are", id)
	}
	for _, wanted := range []func(Run) bool{
		func(r Run) bool { return r.Events && r.State == resources.StateRunning },
		func(r Run) bool { return r.Events },
	} {
		if i := slices.IndexFunc(runs, wanted); i >= 0 {
			return runs[i], nil
		}
	}
	if l.live {
		return Run{}, fail(http.StatusNotFound,
			"no live run here records events: start one with --tap-resource-level MINIMAL")
	}
	return Run{}, fail(http.StatusNotFound,
		"no run here holds resource events: record one with --tap-resource-level MINIMAL")
}

// listRuns answers GET /api/v1/runs. With own, which other servers ask with, hosts are not asked in turn.
func (s *Server) listRuns(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "own"); err != nil {
		return err
	}
	own, err := flagOf(r, "own")
	if err != nil {
		return err
	}
	runs, err := s.runs.runs()
	if err != nil {
		return err
	}
	if own || len(s.hosts) == 0 {
		return writeJSON(w, http.StatusOK, map[string]any{"runs": append([]Run{}, runs...)})
	}
	others, states := s.hosts.list(r.Context())
	runs = append(others, runs...)
	newest(runs)
	return writeJSON(w, http.StatusOK, map[string]any{"runs": append([]Run{}, runs...), "hosts": states})
}
