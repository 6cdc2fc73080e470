package process

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/bpf"
)

// Agent answers runs on other hosts, one at a time.
type Agent struct {
	token string
	watch *bpf.Watch
	names []string
	lines []AgentLine // since they were asked for
	busy  sync.Mutex  // held while a run is answered, and for watch and lines
	warn  func(error)
}

// NewAgent makes an agent of collectors, which it closes. Who connects must send the token. Sources need no Lines.
func NewAgent(token string, interval time.Duration, warn func(error), sources ...bpf.Source) *Agent {
	a := &Agent{token: token, warn: warn, names: []string{}}
	for i := range sources {
		sources[i].Lines = agentLines{a, sources[i].Name}
		a.names = append(a.names, sources[i].Name)
	}
	a.watch = bpf.NewWatch(interval, time.Now(), sources...)
	return a
}

// agentLines keeps a collector's lines until they are asked for.
type agentLines struct {
	a    *Agent
	name string
}

// Append keeps a line.
func (l agentLines) Append(line []byte) error {
	l.a.lines = append(l.a.lines, AgentLine{l.name, bytes.Clone(line)})
	return nil
}

// Serve answers until ctx ends, and closes the listener and the collectors.
func (a *Agent) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var all sync.WaitGroup
	places := make(chan struct{}, mostConnections)
	var failed error
	for {
		places <- struct{}{}
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				failed = fmt.Errorf("accept a run: %w", err)
			}
			break
		}
		all.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := a.answer(conn); err != nil && ctx.Err() == nil {
				a.warn(fmt.Errorf("%s: %w", conn.RemoteAddr(), err))
			}
		})
	}
	cancel()
	all.Wait()
	return errors.Join(failed, a.watch.Close())
}

// mostConnections is how many may be open, those included that have not sent the token.
const mostConnections = 16

var errToken = errors.New("it sent another token, or is another version of llamatap")

// answer answers a run until it closes the connection.
func (a *Agent) answer(conn net.Conn) error {
	in := bufio.NewScanner(conn)
	in.Buffer(nil, mostAsked)
	out := json.NewEncoder(conn)
	var g greeting
	_ = conn.SetDeadline(time.Now().Add(patience))
	if !in.Scan() || json.Unmarshal(in.Bytes(), &g) != nil || g.Version != agentVersion ||
		subtle.ConstantTimeCompare([]byte(g.Token), []byte(a.token)) != 1 {
		return errToken
	}
	if !a.busy.TryLock() {
		_ = out.Encode(answer{Error: "another run is recorded"})
		return errors.New("another run is recorded: it was refused")
	}
	defer a.busy.Unlock()
	_ = conn.SetDeadline(time.Time{}) // a run asks when it wants to; the kernel notices if its host is gone
	hello := AgentHello{Version: agentVersion, Kernel: kernel(), Collectors: a.names}
	hello.Host, _ = os.Hostname()
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		hello.BootID = strings.TrimSpace(string(id))
	}
	if err := out.Encode(hello); err != nil {
		return err
	}
	failed := a.snapshot() // what was before is not the run's
	for a.lines = nil; in.Scan(); {
		reply := answer{Got: bpf.MonoNS()}
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		switch q.Ask {
		case "clock":
		case "lines":
			if err := errors.Join(failed, a.snapshot()); err != nil {
				reply.Error = err.Error()
			}
			failed, reply.Lines, a.lines = nil, a.lines, nil
		default:
			return fmt.Errorf("unknown question %.20q", q.Ask)
		}
		reply.Left = bpf.MonoNS()
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		if err := out.Encode(reply); err != nil {
			return err
		}
	}
	return in.Err()
}

// snapshot asks the collectors. One that fails is left out from then on.
func (a *Agent) snapshot() error {
	err := a.watch.Ask(time.Now())
	if err != nil {
		a.warn(err)
	}
	return err
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Close closes the collectors of an agent that does not serve.
func (a *Agent) Close() error { return a.watch.Close() }
