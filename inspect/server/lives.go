package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
)

// lives are the runs whose events are being read: each is read once, whoever looks.
type lives struct {
	skim bool // see resources.Live
	mu   sync.Mutex
	all  map[string]*life // by directory
	// ask asks a run for its status; nil where there is no way to.
	ask func(dir string) (json.RawMessage, error)
}

// life is a run as far as it was read. Whoever has put an element into busy may use the rest.
type life struct {
	dir   string
	users int // guarded by the mutex of all

	busy  chan struct{}
	live  *resources.Live
	shown []byte // the newest snapshot, made at a time
	at    time.Time
	ended bool // after it nothing will come
}

// get returns a run for somebody who looks at it, and calls put in the end.
func (l *lives) get(dir string) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.all[dir]
	if f == nil {
		f = &life{dir: dir, busy: make(chan struct{}, 1)}
		l.all[dir] = f
	}
	f.users++
	return f
}

// put closes a run that nobody looks at any more, once nobody reads it.
func (l *lives) put(f *life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	delete(l.all, f.dir)
	go func() {
		if f.busy <- struct{}{}; f.live != nil {
			f.live.Close()
		}
	}()
}

// catchUp reads what the log has more than at the last look, until ctx is done.
func (l *lives) catchUp(ctx context.Context, f *life) (ended bool, err error) {
	if f.live == nil {
		if f.live, err = resources.OpenLive(f.dir); err != nil {
			return false, err
		}
		f.live.Skim = l.skim && resources.StateOf(f.dir) == resources.StateRunning
		if l.ask != nil {
			f.live.Ask = func() (json.RawMessage, error) { return l.ask(f.dir) }
		}
	}
	return f.live.Update(ctx)
}

// snapshot returns a run as it is now, or was less than a time ago, as JSON.
func (l *lives) snapshot(ctx context.Context, f *life, age time.Duration) (text []byte, ended bool, err error) {
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if f.shown == nil || time.Since(f.at) >= age {
		step, cancel := context.WithTimeout(ctx, age)
		defer cancel()
		if f.ended, err = l.catchUp(step, f); err != nil {
			return nil, false, err
		}
		if f.shown, err = json.Marshal(f.live.Snapshot(time.Now())); err != nil {
			return nil, false, err
		}
		f.at = time.Now()
	}
	return f.shown, f.ended, nil
}

// live answers GET /api/v1/live: snapshots of a run as server-sent events, until it has ended.
func (s logs) live(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "run"); err != nil {
		return err
	}
	run, err := s.runs.find(r.URL.Query().Get("run"))
	if err != nil {
		return err
	}
	release, err := s.follow()
	if err != nil {
		return err
	}
	defer release()
	f := s.lives.get(run.dir)
	defer s.lives.put(f)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set(runHeader, run.ID)
	out := s.stream(w)
	for every := s.o.Limits.LiveTime; r.Method != http.MethodHead; {
		text, ended, err := s.lives.snapshot(r.Context(), f, every)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "event: snapshot\ndata: %s\n\n", text); err != nil {
			return err
		}
		if ended {
			_, err := fmt.Fprint(out, "event: end\ndata: {}\n\n")
			return err
		}
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-r.Context().Done():
			return nil
		case <-s.stopping:
			return nil
		}
	}
	return nil
}

// follow takes one of the places of streams that continue; release gives it back.
func (s logs) follow() (release func(), err error) {
	select {
	case s.follows <- struct{}{}:
		return func() { <-s.follows }, nil
	default:
		return nil, fail(http.StatusServiceUnavailable, "%d logs are followed already: end one, or ask without follow",
			cap(s.follows))
	}
}
