package process

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// RemoteHost is another host of a run. It is a collector whose lines are those of the host, after one of its clock.
// Snapshot is for one goroutine; the rest for any.
type RemoteHost struct {
	Name  string // as the user calls it
	Hello AgentHello
	conn  net.Conn
	in    *bufio.Scanner

	mu      sync.Mutex
	samples []resource.ClockSample // in the order of time; at most mostSamples
	failed  error
}

// DialAgent connects to the agent at address, host:port.
func DialAgent(name, address, token string) (*RemoteHost, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, fmt.Errorf("%w: start 'llamatap host agent' there", err)
	}
	h := &RemoteHost{Name: name, conn: conn, in: bufio.NewScanner(conn)}
	h.in.Buffer(make([]byte, 64<<10), mostAnswered)
	var raw json.RawMessage
	if err := h.ask(greeting{agentVersion, token}, &raw); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s does not answer: %w: give the token of its agent, and the same version of llamatap",
			address, err)
	}
	var refused answer
	err = errors.Join(json.Unmarshal(raw, &h.Hello), json.Unmarshal(raw, &refused))
	switch {
	case err == nil && refused.Error != "":
		err = errors.New(refused.Error)
	case err == nil && h.Hello.Version != agentVersion:
		err = fmt.Errorf("version %d, this is %d: use the same llamatap", h.Hello.Version, agentVersion)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("agent at %s: %w", address, err)
	}
	return h, nil
}

// Addr is the host's address, without the port.
func (h *RemoteHost) Addr() net.IP { return h.conn.RemoteAddr().(*net.TCPAddr).IP }

func (h *RemoteHost) ask(what, to any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_ = h.conn.SetDeadline(time.Now().Add(patience))
	if _, err := h.conn.Write(append(text, '\n')); err != nil {
		return err
	}
	if !h.in.Scan() {
		return cmp.Or(h.in.Err(), errors.New("the agent ended"))
	}
	return json.Unmarshal(h.in.Bytes(), to)
}

// probes is how many times the clock is asked in an interval. The answer that was under way for the shortest time
// counts.
const probes = 8

func (h *RemoteHost) clock() (best resource.ClockSample, err error) {
	for i := range probes {
		var a answer
		sent := bpf.MonoNS()
		if err := h.ask(question{"clock"}, &a); err != nil {
			return best, err
		}
		s := resource.NewClockSample(sent, a.Got, a.Left, bpf.MonoNS())
		if s.Width() < 0 {
			return best, fmt.Errorf("its clock was read at %d and %d ns, within less time here", a.Got, a.Left)
		}
		if i == 0 || s.Width() < best.Width() {
			best = s
		}
	}
	return best, nil
}

// mostSamples bounds the samples of a clock. Of two neighbours beyond it the better one is kept.
const mostSamples = 2048

func (h *RemoteHost) keep(s resource.ClockSample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == mostSamples {
		for i := range mostSamples / 2 {
			a, b := h.samples[2*i], h.samples[2*i+1]
			if b.Width() < a.Width() {
				a = b
			}
			h.samples[i] = a
		}
		h.samples = h.samples[:mostSamples/2]
	}
	h.samples = append(h.samples, s)
}

// Fit is how the host's clock went. ok is false if it was never asked.
func (h *RemoteHost) Fit() (resource.ClockFit, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return resource.FitClock(h.samples)
}

// clockLine is what an interval says of the clock.
type clockLine struct {
	Host        string `json:"host"`
	Collector   string `json:"collector"`
	MonoNS      int64  `json:"mono_ns"`
	Offset      int64  `json:"offset_ns"` // the host's CLOCK_MONOTONIC less the run's
	Uncertainty int64  `json:"offset_uncertainty_ns"`
}

// Err is why the host, or a collector of it, is asked no more, or nil.
func (h *RemoteHost) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// Snapshot asks the host for its clock and its lines. The lines' mono_ns is the run's clock, host_mono_ns the host's.
func (h *RemoteHost) Snapshot(time.Time) (any, error) {
	lines, err := h.lines()
	if err != nil {
		h.lose(err)
		return nil, err
	}
	return lines, nil
}

// lose notes why something of the host is missing.
func (h *RemoteHost) lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		err = fmt.Errorf("%w; %w", h.failed, err)
	}
	h.failed = err
}

func (h *RemoteHost) lines() ([]json.RawMessage, error) {
	s, err := h.clock()
	if err != nil {
		return nil, err
	}
	h.keep(s)
	offset := s.LowNS + s.Width()/2
	first, err := json.Marshal(clockLine{h.Name, "clock", s.MonoNS, offset, (s.Width() + 1) / 2})
	if err != nil {
		return nil, err
	}
	all := []json.RawMessage{first}
	var a answer
	if err := h.ask(question{"lines"}, &a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		h.lose(errors.New(strings.ReplaceAll(a.Error, "\n", "; ")))
	}
	for _, l := range a.Lines {
		line, err := align(h.Name, l, offset)
		if err != nil {
			return nil, err
		}
		all = append(all, line)
	}
	return all, nil
}

var monoKey = regexp.MustCompile(`"mono_ns":(\d+)`)

// align puts the time of a line on the run's clock. A line without one stays as it is; one that says whose it is, which
// the run says, is refused.
func align(host string, l AgentLine, offset int64) (json.RawMessage, error) {
	var own struct{ Host, Collector json.RawMessage }
	if err := json.Unmarshal(l.Line, &own); err != nil || own.Host != nil || own.Collector != nil ||
		len(l.Line) < 3 || l.Line[0] != '{' {
		return nil, fmt.Errorf("its agent sent an invalid line of %.40q: use the same llamatap", l.Collector)
	}
	line := []byte(l.Line)
	if at := monoKey.FindSubmatchIndex(line); at != nil {
		if own, err := strconv.ParseInt(string(line[at[2]:at[3]]), 10, 64); err == nil {
			line = fmt.Appendf(bytes.Clone(line[:at[0]]), `"mono_ns":%d,"host_mono_ns":%d%s`, own-offset, own,
				line[at[1]:])
		}
	}
	name, _ := json.Marshal(host)
	kind, _ := json.Marshal(l.Collector)
	return fmt.Appendf(nil, `{"host":%s,"collector":%s,%s`, name, kind, bytes.TrimPrefix(line, []byte{'{'})), nil
}

// Close ends the connection.
func (h *RemoteHost) Close() error { return h.conn.Close() }
