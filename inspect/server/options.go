package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/llamatap/llamatap/inspect/otlp"
)

// Options say what is served, to whom, and how much of it at once. Dir, Stored or Hosts must be set, and either Token
// or NoToken.
type Options struct {
	// Dir is a run directory, or a folder of runs: run_* in it, or one folder below. "": none of this host's.
	Dir string
	// Stored are runs in object storage that are shown instead; nil: none.
	Stored Stored
	// Hosts are servers of other hosts, whose runs are shown as well.
	Hosts []Host
	// Live serves no runs but the newest live one below Dir, and when that has ended it, until there is another.
	Live bool
	// Token must come with every request but /healthz: "Authorization: Bearer TOKEN".
	Token string
	// NoToken serves without a token whoever can connect: for a Unix socket, whose mode is its guard. Requests must
	// then name a loopback address as their host.
	NoToken bool
	// Control gives a run a command; nil where there is no way to. It returns the run's answer.
	Control func(dir string, c Command) (json.RawMessage, error)
	// Generate runs a prompt and records it in a run below Dir; nil where that is not to be had. It calls began
	// with the run's directory as soon as there is one, and ends soon after its context. The result is that of the
	// prompt as a line of 'llamatap run --results' (docs/PROMPTS.md).
	Generate func(ctx context.Context, p Prompt, began func(dir string)) (result json.RawMessage, err error)
	// Report writes the report of a run directory as an HTML page; nil where there is none.
	Report func(ctx context.Context, dir string, out io.Writer) error
	// Origins are origins of web pages, such as https://host:port, that may ask this server from a browser, with
	// the token as anybody else.
	Origins []string
	// Export says where requests of live runs go that do not export them themselves. Without endpoints: nowhere.
	Export otlp.Options
	// Wait waits until it is worth looking whether a log has grown. nil waits [PollTime].
	Wait func(context.Context)
	// Limits bound what clients may take up; a field that is 0 is that of [defaultLimits].
	Limits Limits
}

// Stored are sealed runs elsewhere, which are copied when somebody looks at one. Its methods may be called from several
// goroutines.
type Stored interface {
	// Runs lists them, newest first.
	Runs() ([]Run, error)
	// Fetch copies the run of an id, unless it is copied already, and returns the copy.
	Fetch(id string) (dir string, err error)
}

// PollTime is how often a log that is followed is looked at.
const PollTime = 100 * time.Millisecond

// Limits bound what clients may take up.
type Limits struct {
	Connections int           // at once of clients with the token, and as many without it
	Follows     int           // streams of growing logs at once
	Body        int64         // bytes of a request's body
	Header      int           // bytes of a request's header
	ReadTime    time.Duration // for a header, and for a body
	WriteTime   time.Duration // in which a client must take what is written
	IdleTime    time.Duration // of a connection without a request
	StopTime    time.Duration // that requests have to end when the server stops
	FoldTime    time.Duration // that one look at the metrics may read new lines
	Generation  time.Duration // that a prompt may be run for
	LiveTime    time.Duration // between two snapshots of a live run
}

// defaultLimits are meant for a few people and a Prometheus.
var defaultLimits = Limits{
	Connections: 64, Follows: 32, Body: 1 << 20, Header: 16 << 10, ReadTime: 10 * time.Second,
	WriteTime: 10 * time.Second,
	IdleTime:  time.Minute, StopTime: 5 * time.Second, FoldTime: 2 * time.Second, Generation: 10 * time.Minute,
	LiveTime: 500 * time.Millisecond,
}

// orDefault fills in what is 0.
func (l Limits) orDefault() Limits {
	d := defaultLimits
	return Limits{
		Connections: cmp.Or(l.Connections, d.Connections), Follows: cmp.Or(l.Follows, d.Follows),
		Body: cmp.Or(l.Body, d.Body), Header: cmp.Or(l.Header, d.Header),
		ReadTime: cmp.Or(l.ReadTime, d.ReadTime), WriteTime: cmp.Or(l.WriteTime, d.WriteTime),
		IdleTime: cmp.Or(l.IdleTime, d.IdleTime), StopTime: cmp.Or(l.StopTime, d.StopTime),
		FoldTime: cmp.Or(l.FoldTime, d.FoldTime), Generation: cmp.Or(l.Generation, d.Generation),
		LiveTime: cmp.Or(l.LiveTime, d.LiveTime),
	}
}

// Command is what PUT /api/v1/level sends to a run.
type Command struct {
	Command string `json:"command"`         // level, enable, disable, flush or status
	Level   string `json:"level,omitempty"` // of level: MINIMAL, DETAILED, VERBOSE or off
}

// Prompt is what a client wants generated, as LRI spells it.
type Prompt struct {
	Prompt   string   `json:"prompt"`
	Sampling Sampling `json:"sampling"`
	// MaxTokens is how many tokens are generated at most, up to [MaxTokens]; 0: 512, as in LRI.
	MaxTokens int `json:"max_tokens"`
	// Stream asks for events as they are recorded instead of one answer at the end.
	Stream bool `json:"stream"`
}

// MaxTokens is how many tokens a prompt may ask for.
const MaxTokens = 4096

// Sampling is how tokens are chosen; a field that is nil is left to the runner.
type Sampling struct {
	Method      string   `json:"method"` // greedy, top_k, top_p or temperature
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
	Temperature *float64 `json:"temperature"`
	MinP        *float64 `json:"min_p"`
	Seed        *uint32  `json:"seed"`
}

// loopback reports whether a host is this machine's own to itself.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var (
	errNoDir   = errors.New("serve: no folder given")
	errNoToken = errors.New("serve: no token given")
)
