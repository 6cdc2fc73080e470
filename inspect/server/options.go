package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Options say what is served, to whom, and how much of it at once. Only Dir must be set.
type Options struct {
	// Dir is a run directory, or a folder of runs: run_* in it, or one folder below.
	Dir string
	// Live serves no runs but the newest one below Dir that goes on, and when that has ended it, until there is another.
	Live bool
	// Token, where it is not "", must come with every request but /healthz: "Authorization: Bearer TOKEN".
	Token string
	// Host is the host part of the address that is listened on. Without a token, requests must name it or a loopback address as theirs:
	// a page of the web whose name leads here must not read runs.
	Host string
	// Control gives a run a command; nil where there is no way to. It returns the run's answer.
	Control func(dir string, c Command) (json.RawMessage, error)
	// Generate runs a prompt and returns the directory of the run that recorded it; nil where no runner is attached.
	Generate func(context.Context, Prompt) (dir string, err error)
	// Wait waits until it is worth looking whether a log has grown. nil waits [PollTime].
	Wait func(context.Context)
	// Limits bound what clients may take up; a field that is 0 is that of [DefaultLimits].
	Limits Limits
}

// PollTime is how often a log that is followed is looked at.
const PollTime = 100 * time.Millisecond

// Limits bound what clients may take up.
type Limits struct {
	Connections int           // at once; one more is told so and closed
	Follows     int           // streams of growing logs at once
	Body        int64         // bytes of a request's body
	Header      int           // bytes of a request's header
	ReadTime    time.Duration // for a header, and for a body
	WriteTime   time.Duration // in which a client must take what is written
	IdleTime    time.Duration // of a connection without a request
	StopTime    time.Duration // that requests have to end when the server stops
	FoldTime    time.Duration // that one look at the metrics may read new lines
}

// DefaultLimits are meant for a few people and a Prometheus.
var DefaultLimits = Limits{
	Connections: 64, Follows: 32, Body: 1 << 20, Header: 16 << 10, ReadTime: 10 * time.Second, WriteTime: 10 * time.Second,
	IdleTime: time.Minute, StopTime: 5 * time.Second, FoldTime: 2 * time.Second,
}

// orDefault fills in what is 0.
func (l Limits) orDefault() Limits {
	d := DefaultLimits
	set(&l.Connections, d.Connections)
	set(&l.Follows, d.Follows)
	set(&l.Body, d.Body)
	set(&l.Header, d.Header)
	set(&l.ReadTime, d.ReadTime)
	set(&l.WriteTime, d.WriteTime)
	set(&l.IdleTime, d.IdleTime)
	set(&l.StopTime, d.StopTime)
	set(&l.FoldTime, d.FoldTime)
	return l
}

func set[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Command is what a run is told by PUT /api/v1/level.
type Command struct {
	Command string `json:"command"`         // level, enable, disable, flush or status
	Level   string `json:"level,omitempty"` // of level: MINIMAL, DETAILED, VERBOSE or off
}

// Prompt is what a client wants generated, as system B spells it.
type Prompt struct {
	Prompt   string   `json:"prompt"`
	Sampling Sampling `json:"sampling"`
}

// Sampling is how tokens are chosen; a field that is nil is left to the runner.
type Sampling struct {
	Method      string   `json:"method"` // greedy, top_k, top_p or temperature
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
	Temperature *float64 `json:"temperature"`
	MinP        *float64 `json:"min_p"`
	Seed        *uint32  `json:"seed"`
}

// minToken is how many characters a token has at least.
const minToken = 16

// CheckAddress tells whether an address may be listened on with a token, or without where it is "": only a loopback address may be
// without. The error names the remedy.
func CheckAddress(addr, token string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return fmt.Errorf("address %q: give HOST:PORT, such as 127.0.0.1:8080", addr)
	}
	if token != "" && len(token) < minToken {
		return fmt.Errorf("the token has %d characters: give at least %d, as from: openssl rand -hex 16", len(token), minToken)
	}
	if token == "" && !loopback(host) {
		if host == "" {
			host = "every address"
		}
		return fmt.Errorf("%s can be reached from other machines, and runs hold prompts: give --token, or an address such as 127.0.0.1:%s", host, port)
	}
	return nil
}

// loopback tells whether a host is this machine's own to itself.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var errNoDir = errors.New("serve: no folder given")
