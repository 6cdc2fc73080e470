package server

import (
	"encoding/json"
	"sync"
	"time"
)

// asking is the questions to runs that are on their way, one a run. A collector runs when nobody else wants to, and
// may take long to answer; who shows what it says does not wait for that.
type asking struct {
	mu  sync.Mutex
	now map[string]*question // by directory
}

// question is one of them. Text is there when done is closed.
type question struct {
	done chan struct{}
	text json.RawMessage
}

// askTime is how long somebody waits for a run to say how it is.
const askTime = time.Second

// status asks a run how it is, or joins who does already, and waits for at most askTime. It returns nil where there
// is not an answer.
func (a *asking) status(dir string, control func(dir string, c Command) (json.RawMessage, error)) json.RawMessage {
	a.mu.Lock()
	q := a.now[dir]
	if q == nil {
		q = &question{done: make(chan struct{})}
		if a.now == nil {
			a.now = map[string]*question{}
		}
		a.now[dir] = q
		go func() {
			q.text, _ = control(dir, Command{Command: "status"}) // a run without an answer is left out
			a.mu.Lock()
			delete(a.now, dir)
			a.mu.Unlock()
			close(q.done)
		}()
	}
	a.mu.Unlock()
	timer := time.NewTimer(askTime)
	defer timer.Stop()
	select {
	case <-q.done:
		return q.text
	case <-timer.C:
		return nil
	}
}
