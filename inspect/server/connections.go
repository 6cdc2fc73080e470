package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// connections are those that the server has. One is a stranger until a request on it shows the token; strangers and
// admitted clients are limited apart, so that nobody without the token can lock out those who have it.
type connections struct {
	limit int // of either

	mu        sync.Mutex
	strangers []*connection // the oldest first
	admitted  int
}

// connection is one of them. Its fields are guarded by the mutex of all.
type connection struct {
	net.Conn
	all      *connections
	host     string
	admitted bool
	closed   bool
}

// limitedListener accepts connections as strangers.
type limitedListener struct {
	net.Listener
	all *connections
}

// Accept returns the next connection. Where there are too many strangers, the oldest of the host that has most of
// them is closed for it.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // the same for all connections of a Unix socket
	c := &connection{Conn: conn, all: l.all, host: host}
	if crowded := l.all.add(c); crowded != nil {
		crowded.Close()
	}
	return c, nil
}

// add notes a new stranger, and returns one that must go for it; nil: there is room.
func (a *connections) add(c *connection) (crowded *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.strangers) >= a.limit {
		count := map[string]int{}
		for _, s := range a.strangers {
			count[s.host]++
		}
		// the first of equals
		crowded = slices.MaxFunc(a.strangers,
			func(x, y *connection) int { return cmp.Compare(count[x.host], count[y.host]) })
		a.forget(crowded)
	}
	a.strangers = append(a.strangers, c)
	return crowded
}

func (a *connections) forget(c *connection) {
	if i := slices.Index(a.strangers, c); i >= 0 {
		a.strangers = slices.Delete(a.strangers, i, i+1)
	}
}

// admit makes a stranger an admitted client; false: there are too many of those.
func (a *connections) admit(c *connection) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case c.admitted || c.closed:
		return true
	case a.admitted >= a.limit:
		return false
	}
	a.forget(c)
	c.admitted = true
	a.admitted++
	return true
}

// Close closes the connection and gives its place back.
func (c *connection) Close() error {
	c.all.mu.Lock()
	if c.all.forget(c); c.admitted && !c.closed {
		c.all.admitted--
	}
	c.closed = true
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// connectionKey finds the connection in the context of its requests.
type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// admitted admits the client that sent a request, who may come in; false: there are too many.
func admitted(r *http.Request) bool {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	return !ok || c.all.admit(c)
}
