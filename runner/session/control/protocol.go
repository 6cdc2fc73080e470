package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// maxLine bounds a request and an answer, in bytes with the newline.
const maxLine = 64 << 10

// The commands.
const (
	CommandStatus = "status" // say how the run is
	CommandTap    = "tap"    // capture the tensors of the request, and nothing else
	commandOff    = "off"    // capture nothing
	CommandOn     = "on"     // capture what was asked for at the start
	CommandFlush  = "flush"  // make everything recorded so far readable
	CommandStop   = "stop"   // record no more and seal the run; the model continues

	CommandLevel   = "level"   // record resource events at the level of the request, or none
	CommandDisable = "disable" // record no resource events
	CommandEnable  = "enable"  // record them again, at the level that there was

	CommandSteer = "steer" // add a control vector to the residual stream, or none

	CommandMark = "mark" // set a marker: a recording of llamatap memory record alone takes it, and no other command
)

// VectorOff is the vector of a steer command that adds none.
const VectorOff = "off"

// Levels lists what a level command takes.
var Levels = []string{"MINIMAL", "DETAILED", "VERBOSE", "off"}

// commands lists every command that Parse knows.
var commands = []string{CommandStatus, CommandTap, commandOff, CommandOn, CommandFlush, CommandStop, CommandLevel,
	CommandEnable, CommandDisable, CommandSteer, CommandMark}

// ErrRequest occurs when a request cannot be understood.
var ErrRequest = errors.New("bad request")

// Request is one line of a client.
type Request struct {
	Command string   `json:"command"`
	Tensors []string `json:"tensors,omitempty"` // tap: globs as of --tap-tensor; one, or a point, at least
	Points  []string `json:"points,omitempty"`  // tap: names as of --tap-point
	Layers  string   `json:"layers,omitempty"`  // tap: a list as of --tap-layer; empty: all
	// tap: that many tokens, from the next graph on; 0: until another command comes
	Tokens int64  `json:"tokens,omitempty"`
	Level  string `json:"level,omitempty"` // level: MINIMAL, DETAILED, VERBOSE or off
	// Sequence is the one that steer is for; absent: all that have no vector of their own.
	Sequence *int   `json:"seq_id,omitempty"`
	Vector   string `json:"vector,omitempty"`  // steer: FILE:SCALE[:LAYERS], of an absolute path, or off
	Name     string `json:"name,omitempty"`    // mark: of the marker
	MonoNS   int64  `json:"mono_ns,omitempty"` // mark: its time on CLOCK_MONOTONIC; 0: that of the answer
}

// Answer is the collector's line to a request.
type Answer struct {
	OK     bool    `json:"ok"`
	Error  string  `json:"error,omitempty"` // one line: cause and remedy
	Status *Status `json:"status,omitempty"`
	// Mark is the marker that was set.
	Mark *memtrace.Mark `json:"mark,omitempty"`
}

// Status is how a run is. Figures are of what the collector has read so far.
type Status struct {
	Run       string   `json:"run"`
	PID       int      `json:"pid"`   // of the model's process
	State     State    `json:"state"` // what is captured now
	Selection uint32   `json:"selection"`
	Tensors   []string `json:"tensors,omitempty"` // of that selection; absent: all, or as at the start
	Points    []string `json:"points,omitempty"`
	Layers    string   `json:"layers,omitempty"`
	Tokens    int64    `json:"tokens,omitempty"`      // that it was asked for
	Left      *int64   `json:"tokens_left,omitempty"` // of these; absent until a graph goes by it
	FirstExec *uint64  `json:"first_exec,omitempty"`  // first execution that goes by it; absent while there was none
	Level     string   `json:"level,omitempty"`       // of resource events; absent where none are recorded
	// KV is how the caches are used; absent where their cells are not followed.
	KV *kvcache.Snapshot `json:"kv,omitempty"`
	// Requests is how the requests of a server are; absent where they are not recorded.
	Requests *kvcache.RequestsNow `json:"requests,omitempty"`
	// Energy is what each device used in each phase until about a second ago; absent where no energy counter is read.
	Energy map[string]map[string]float64 `json:"energy_j,omitempty"`
	// Steering is the newest of what is added to the residual stream; absent where the run is not armed. Sequences are
	// those that have a vector of their own.
	Steering   *rundir.Steering  `json:"steering,omitempty"`
	Sequences  []rundir.Steering `json:"steered_sequences,omitempty"`
	Executions uint64            `json:"executions"`
	Packets    uint64            `json:"packets"` // written
	Stored     uint64            `json:"bytes_stored"`
	Lost       uint64            `json:"packets_lost"`
	Losses     map[string]uint64 `json:"losses,omitempty"` // the same, by cause
	// PoolUsed is what tensors hold of the memory between the model and the collector that were not written yet.
	PoolUsed   uint64          `json:"pool_bytes_used"`
	Pool       uint64          `json:"pool_bytes"`
	Goroutines int             `json:"goroutines"` // of the collector
	Account    *rundir.Account `json:"account,omitempty"`
}

// State is what a run captures.
type State string

// The states.
const (
	StateStart State = "start" // what was asked for at the start
	StateTap   State = "tap"   // the tensors of a tap command
	StateDone  State = "done"  // nothing: a tap command has had its tokens
	StateOff   State = "off"   // nothing
)

// parse reads one request. Its error is one line, and wraps ErrRequest.
func parse(line []byte) (Request, error) {
	var r Request
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Request{}, fmt.Errorf(`%w: %v; a request is a JSON object on one line, such as {"command":"status"}`,
			ErrRequest, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Request{}, fmt.Errorf("%w: more than one JSON object on a line", ErrRequest)
	}
	return r, r.Check()
}

// Check returns what is wrong with a request.
func (r *Request) Check() error {
	switch {
	case !slices.Contains(commands, r.Command):
		return fmt.Errorf("%w: unknown command %.40q: there are %s", ErrRequest, r.Command,
			strings.Join(commands, ", "))
	case r.Command != CommandTap && (len(r.Tensors)+len(r.Points) > 0 || r.Layers != "" || r.Tokens != 0):
		return fmt.Errorf("%w: %s takes no tensors, points, layers or tokens; only tap does", ErrRequest, r.Command)
	case r.Command == CommandTap && len(r.Tensors)+len(r.Points) == 0:
		return fmt.Errorf("%w: tap needs tensors, such as l_out*, or points, such as resid_post", ErrRequest)
	case r.Command == CommandLevel && !slices.Contains(Levels, r.Level):
		return fmt.Errorf("%w: level %.40q: give one of %s", ErrRequest, r.Level, strings.Join(Levels, ", "))
	case r.Command != CommandLevel && r.Level != "":
		return fmt.Errorf("%w: %s takes no level; only level does", ErrRequest, r.Command)
	case (r.Command == CommandSteer) != (r.Vector != ""):
		return fmt.Errorf("%w: steer needs a vector, as in steer code.gguf:0.5, or off; no other command takes one",
			ErrRequest)
	case r.Sequence != nil && (r.Command != CommandSteer || *r.Sequence < 0):
		return fmt.Errorf("%w: a sequence is a number from 0, of steer alone", ErrRequest)
	case r.Command != CommandMark && (r.Name != "" || r.MonoNS != 0):
		return fmt.Errorf("%w: %s takes no name and no time; only mark does", ErrRequest, r.Command)
	case slices.Contains(r.Tensors, ""):
		return fmt.Errorf("%w: a tensor glob is empty", ErrRequest)
	case r.Tokens < 0 || r.Tokens > maxTokens:
		return fmt.Errorf("%w: %d tokens: give a number from 1 to %d, or none", ErrRequest, r.Tokens, int64(maxTokens))
	}
	if r.Command == CommandMark {
		if _, err := memtrace.NewMark(r.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	for _, name := range r.Points {
		if _, ok := ggmlhooks.ParsePoint(name); !ok {
			return fmt.Errorf("%w: unknown point %.40q: 'llamatap inspect MODEL --points' lists those of a model",
				ErrRequest, name)
		}
	}
	if r.Layers != "" {
		if _, err := ggmlhooks.ParseLayerSet(r.Layers); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	return nil
}

// maxTokens bounds the tokens of a tap command.
const maxTokens = 1 << 31
