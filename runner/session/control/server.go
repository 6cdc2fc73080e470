//go:build linux

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// Bounds that keep clients from costing more than they should.
const (
	maxClients = 16
	writeTime  = 5 * time.Second // a client that does not read its answer is left
	idleTime   = 10 * time.Minute
)

// endedText answers requests that came too late.
const endedText = "the run is ending: nothing can be changed any more"

// Server is the collector's end of the socket. Clients are read by goroutines of its own; what they ask is answered
// where [Server.Serve] is called, one request after the other.
type Server struct {
	path     string
	listener *net.UnixListener
	requests chan call
	ended    chan struct{}
	mu       sync.Mutex
	clients  map[*net.UnixConn]struct{}
	running  sync.WaitGroup
	close    sync.Once
}

type call struct {
	request Request
	answer  chan Answer
}

// Listen makes the socket in a run directory, for its owner only. A socket that nobody listens to any more is replaced.
// It comes into the directory under its name when it can be connected to, and not before. The caller calls Close.
func Listen(dir string) (*Server, error) {
	path, done, err := address(dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer done()
	raw := filepath.Join(filepath.Dir(path), newName)
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("control socket: another process listens at %s", filepath.Join(dir, rundir.SocketName))
	}
	os.Remove(raw)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: raw, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // its path may be one of a descriptor that is gone by then
	if err := errors.Join(os.Chmod(raw, 0o600), os.Rename(raw, path)); err != nil {
		listener.Close()
		os.Remove(raw)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{
		path: filepath.Join(dir, rundir.SocketName), listener: listener, requests: make(chan call),
		ended: make(chan struct{}), clients: map[*net.UnixConn]struct{}{},
	}
	s.running.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // out of descriptors: somebody may give one back
			continue
		}
		if !s.admit(conn) {
			send(conn, Answer{Error: fmt.Sprintf("%d clients are connected, which is all that may be; try again later",
				maxClients)})
			conn.Close()
			continue
		}
		s.running.Go(func() { s.client(conn) })
	}
}

// admit notes a client, unless there are too many or the server is closed.
func (s *Server) admit(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil || len(s.clients) >= maxClients {
		return false
	}
	s.clients[conn] = struct{}{}
	return true
}

func (s *Server) leave(conn *net.UnixConn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, conn)
}

// client answers one client until it goes, or says something that no line is.
func (s *Server) client(conn *net.UnixConn) {
	defer s.leave(conn)
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1024), maxLine)
	for {
		conn.SetReadDeadline(time.Now().Add(idleTime))
		if !lines.Scan() {
			break
		}
		if !send(conn, s.ask(lines.Bytes())) {
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		send(conn, Answer{Error: fmt.Sprintf("%v: a line is longer than %d bytes", ErrRequest, maxLine)})
	}
}

// ask has a line answered by whoever serves.
func (s *Server) ask(line []byte) Answer {
	request, err := parse(line)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	c := call{request, make(chan Answer, 1)}
	select {
	case s.requests <- c:
		return <-c.answer
	case <-s.ended:
		return Answer{Error: endedText}
	}
}

// send reports whether the client has taken the answer.
func send(conn net.Conn, a Answer) bool {
	line, err := json.Marshal(a)
	if err != nil {
		return false
	}
	conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = conn.Write(append(line, '\n'))
	return err == nil
}

// Serve answers the requests that wait, and returns. It never waits for a client.
func (s *Server) Serve(answer func(Request) Answer) {
	for {
		select {
		case c := <-s.requests:
			c.answer <- answer(c.request)
		default:
			return
		}
	}
}

// Close takes the socket away and ends every client, after the answers that are under way. It may be called twice.
func (s *Server) Close() error {
	s.close.Do(func() {
		os.Remove(s.path) // first: who finds it can connect
		s.listener.Close()
		close(s.ended)
		s.mu.Lock()
		for conn := range s.clients {
			conn.CloseRead()
		}
		s.clients = nil
		s.mu.Unlock()
	})
	s.running.Wait()
	return nil
}
