package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/store/rundir"
)

// generation is a prompt that is run.
type generation struct {
	began  chan string // gets the run's directory
	ended  chan struct{}
	dir    string // known when a receive from began or ended has returned
	result json.RawMessage
	err    error
}

// generate begins to run a prompt.
func (s prompts) generate(ctx context.Context, p Prompt) *generation {
	g := &generation{began: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		g.result, g.err = s.o.Generate(ctx, p, func(dir string) { g.dir = dir; g.began <- dir })
		if g.err == nil && g.dir == "" {
			g.err = errors.New("it left no run")
		}
	}()
	return g
}

// answer is what LRI answers, with the result of the prompt.
func (g *generation) answer(status string) map[string]any {
	answer := map[string]any{"session_id": filepath.Base(g.dir),
		"log_file_path": filepath.Join(g.dir, rundir.EventsName), "status": status}
	if g.result != nil {
		answer["result"] = g.result
	}
	return answer
}

// logMonitoring answers POST /log-monitoring: a prompt is run and recorded, one at a time. It ends with the client,
// the server, or its time.
func (s prompts) logMonitoring(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "event", "layer"); err != nil {
		return err
	}
	wanted, err := newFilter(r)
	if err != nil {
		return err
	}
	if s.o.Generate == nil {
		return fail(http.StatusNotImplemented,
			"this server cannot run prompts: it serves a single run, or --live; give it a folder of runs")
	}
	var p Prompt
	if err := readJSON(w, r, &p, false); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	default:
		w.Header().Set("Retry-After", "1")
		return fail(http.StatusServiceUnavailable, "another prompt is being run: try again when it has ended")
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.Generation)
	g := s.generate(ctx, p)
	defer func() { cancel(); <-g.ended }()
	if p.Stream {
		return s.streamGeneration(w, r, g, wanted)
	}
	select {
	case <-g.ended:
	case <-s.stopping:
		cancel()
		<-g.ended
	}
	if g.err != nil {
		return fail(http.StatusInternalServerError, "the prompt could not be run: %w", g.err)
	}
	http.NewResponseController(w).SetWriteDeadline(s.deadline())
	return writeJSON(w, http.StatusOK, g.answer("completed"))
}

// check refuses what cannot be run.
func (p *Prompt) check() error {
	switch {
	case p.Prompt == "":
		return fail(http.StatusBadRequest, "prompt is missing: give one as text")
	case !slices.Contains([]string{"", "greedy", "top_k", "top_p", "temperature"}, p.Sampling.Method):
		return fail(http.StatusBadRequest, "sampling.method %.40q: use greedy, top_k, top_p or temperature",
			p.Sampling.Method)
	case p.MaxTokens < 0 || p.MaxTokens > MaxTokens:
		return fail(http.StatusBadRequest, "max_tokens %d: use 1 to %d, or leave it out", p.MaxTokens, MaxTokens)
	}
	return nil
}

// streamGeneration answers with lines of JSON: the session, its events as they are recorded, and what came of it.
func (s prompts) streamGeneration(w http.ResponseWriter, r *http.Request, g *generation, wanted filter) error {
	select {
	case <-g.began:
	case <-g.ended:
		if g.err != nil {
			return fail(http.StatusInternalServerError, "the prompt could not be run: %w", g.err)
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(runHeader, filepath.Base(g.dir))
	out := s.stream(w)
	line := func(v map[string]any) error {
		text, err := json.Marshal(v)
		if err == nil {
			_, err = out.Write(append(text, '\n'))
		}
		if err == nil {
			err = out.flush()
		}
		return err
	}
	if err := line(g.answer("running")); err != nil {
		return err
	}
	if tail, err := resources.OpenTail(g.dir); err == nil {
		defer tail.Close()
		tail.Done = r.Context().Done()
		if _, err := s.copyLines(r, out, tail, 0, true, wanted); err != nil {
			return err
		}
	}
	select {
	case <-g.ended:
	case <-s.stopping:
		return nil // the answer is seen to be cut off: it has no last line
	case <-r.Context().Done():
		return nil
	}
	if g.err != nil {
		last := g.answer("failed")
		last["error"] = g.err.Error()
		return line(last)
	}
	return line(g.answer("completed"))
}
