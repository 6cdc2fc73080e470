//go:build linux

package session

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// metadata is metadata.json of a run that ended.
func (s *sink) metadata(process *collect.Process, exit collect.Exit) rundir.Metadata {
	m := s.describe(s.use())
	m.RunID, m.Created = s.dir.ID(), s.started.UTC()
	m.Tap = tapUse(s.region.Stats())
	m.Exit = &rundir.Exit{Status: exit.Status}
	if exit.Signal != 0 {
		m.Exit.Signal = unix.SignalName(exit.Signal)
	}
	if exit.Hung {
		m.Exit.Reason = hungReason
	}
	m.Account = s.account()
	m.Losses, m.Lossy = m.Account.Lost, len(m.Account.Lost) > 0
	m.Stopped = s.stopped()
	m.Changes = s.steering.changes
	m.Resumed = s.resumed
	if s.early {
		m.Exit = nil // the program still runs
	}
	if s.o.Tap.Records(config.Activations) || s.written().Packets > 0 {
		m.Streams = []rundir.Stream{s.streamUse(s.written())}
	}
	m.Segments = s.series.places
	s.extra(&m, "processes", processUse(process))
	if s.events != nil {
		s.extra(&m, "events", s.events.use())
	}
	if s.ledger != nil {
		s.extra(&m, "ledger", s.ledger.use(&s.trace))
	}
	if s.host != nil {
		s.extra(&m, "host_collectors", s.host.use())
	}
	if s.samples != nil {
		s.extra(&m, "memory_samples", s.samples.use())
	}
	if s.monitor != nil {
		s.extra(&m, "process_monitor", s.monitor.use())
	}
	return m
}

// beginning is metadata.json of a run that has only begun, so that a run whose collector is killed is known by more
// than its tensors. How it ended and what it did is absent.
func (s *sink) beginning() rundir.Metadata {
	m := s.describe(capture.Use{})
	m.RunID, m.Created, m.Resumed = s.dir.ID(), s.started.UTC(), s.resumed
	m.Ended, m.SealedBy, m.Losses = time.Time{}, "", []rundir.Loss{}
	m.Phases, m.Tokens, m.Extra = nil, nil, nil
	return m
}

// describe says of a stretch of the run what is known while it goes on.
func (s *sink) describe(use capture.Use) rundir.Metadata {
	m := rundir.Metadata{
		Version: rundir.MetadataVersion, Llamatap: s.o.Version, Ended: time.Now().UTC(), SealedBy: "collector", Command: s.command(),
		Contexts: slices.Clone(s.contexts), Host: rundir.ThisHost(), Config: s.o.Tap.Echo(), Clock: s.clock,
		Llama:  rundir.Llama{Prefix: s.o.Llama.Prefix},
		Phases: map[string]rundir.PhaseUse{}, Extra: map[string]json.RawMessage{},
	}
	m.Llama.Version, m.Llama.GGML = s.region.Versions()
	if len(s.contexts) > 0 {
		m.Model = s.contexts[0].Model
	}
	for phase, graphs := range use.Graphs {
		p := m.Phases[phase.String()]
		p.Graphs, p.NS = graphs, use.NS[phase]
		m.Phases[phase.String()] = p
	}
	for phase, rows := range use.Rows {
		p := m.Phases[phase.String()]
		p.Tokens = rows
		m.Phases[phase.String()] = p
	}
	m.Tokens = &rundir.Tokens{
		Prompt: use.Rows[ggmlhooks.PhasePrefill], Generated: use.Rows[ggmlhooks.PhaseDecode], Setup: use.Rows[ggmlhooks.PhaseSetup],
		Requests: use.Requests,
	}
	s.extra(&m, "entry_points_missing", s.region.Missing())
	s.extra(&m, "structures_unknown", s.region.Layouts())
	if others := s.region.Found().Others; others > 0 {
		s.extra(&m, "processes_not_recorded", others)
	}
	s.extra(&m, "attention", use.Attached)
	if turns := s.region.Turns(); len(turns) > 0 {
		s.extra(&m, "turns_ns", turns)
	}
	return m
}

// streamUse is what a stream holds.
func (s *sink) streamUse(written stream.Stats) rundir.Stream {
	use := rundir.Stream{
		Name: StreamName, Packets: written.Packets, BytesSource: written.SrcBytes, BytesRaw: written.RawBytes, BytesStored: written.Stored,
		Saturated: written.Saturated, Underflow: written.Underflow, Codec: s.o.Tap.Codec, DType: s.o.Tap.DType,
	}
	if id, err := codec.Parse(s.o.Tap.Codec); err == nil && id.Bounded() {
		use.DType, use.Error, use.ErrorMetric = codec.F32.String(), &s.o.Tap.Error, s.o.Tap.ErrorMetric
		use.MaxAbs, use.NRMSE = &written.Error.MaxAbs, &written.Error.NRMSE
	}
	return use
}

// command is the command line as metadata.json shows it.
func (s *sink) command() []string {
	if s.o.Tap.RedactText {
		return redactCommand(s.o.Echo)
	}
	return s.o.Echo
}

// extra adds what has no field of its own; an empty list is left out.
func (s *sink) extra(m *rundir.Metadata, name string, v any) {
	text, err := json.Marshal(v)
	if err == nil && string(text) != "null" && string(text) != "[]" {
		m.Extra[name] = text
	}
}

func tapUse(s collect.Stats) *rundir.Tap {
	own, hook, ask, copied, wait := int64(s.Own()), int64(s.HookNS+s.DescribeNS+s.APINS), int64(s.AskNS), int64(s.CopyNS), int64(s.WaitNS)
	described, rebuilt, calls := int64(s.DescribeNS), int64(s.RebuiltNS), int64(s.APINS)
	return &rundir.Tap{
		OwnNS: &own, HookNS: &hook, DescribeNS: &described, CallNS: &calls, Graphs: &s.Graphs, Executions: &s.Executions, AskNS: &ask, CopyNS: &copied, WaitNS: &wait,
		Rebuilt: &s.Rebuilt, RebuiltNS: &rebuilt, NodesAsked: &s.Asks, Copies: &s.Copies, CopyBytes: &s.CopiedBytes, Source: "measured",
	}
}

// usage is what the two processes used, as the kernel counts it. The touched pages of the shared memory are part of
// the model's peak, and, as far as the collector has read them, of the collector's.
type usage struct {
	CollectorCPUNS     int64 `json:"collector_cpu_ns"`
	CollectorPeakKiB   int64 `json:"collector_peak_rss_kib"`
	CollectorSharedKiB int64 `json:"collector_shared_kib"` // of its memory at the end
	ModelCPUNS         int64 `json:"model_cpu_ns,omitempty"`
	ModelPeakKiB       int64 `json:"model_peak_rss_kib,omitempty"`
	SharedMemoryBytes  int64 `json:"shared_memory_bytes"`
}

func processUse(process *collect.Process) usage {
	var own unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &own)
	u := usage{
		CollectorCPUNS: own.Utime.Nano() + own.Stime.Nano(), CollectorPeakKiB: own.Maxrss, SharedMemoryBytes: process.Region.Size(),
	}
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		fmt.Sscan(field(string(text), "RssShmem"), &u.CollectorSharedKiB)
		// What getrusage calls the peak is at least that of the program that started this one.
		fmt.Sscan(field(string(text), "VmHWM"), &u.CollectorPeakKiB)
	}
	if model := process.Usage(); model != nil {
		u.ModelCPUNS = model.Utime.Nano() + model.Stime.Nano()
		u.ModelPeakKiB = model.Maxrss
	}
	return u
}

// field returns the value of the first line "name : value".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
