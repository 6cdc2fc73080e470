//go:build linux

package session

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/models"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// StreamName is the file of captured tensors in a run directory.
const StreamName = rundir.StreamName

// sink keeps what the tap reports about contexts, makes the run directory with the first of them, and passes the rest
// on to the recorder.
type sink struct {
	ggmlhooks.Sink // the recorder, while it records
	o              Options
	region         *collect.Region
	reader         *collect.Reader
	budget         budget
	started        time.Time
	clock          rundir.Clock
	dir            *rundir.Dir
	recorder       *capture.Recorder // nil until the first context
	tee            tee
	kv             *kv        // nil: cells are not followed
	events         *events    // nil: none are recorded
	host           *hostSide  // nil: the kernel is not watched
	regions        *regionMap // nil: there is no map
	ledger         *accesses  // nil: accesses are not recorded
	trace          trace
	samples        *samples // nil: no accesses are sampled
	monitor        *monitor // nil: nobody records what the processes take
	maps           []byte   // of the model's process, as it was before there was a run directory
	contexts       []rundir.Context
	speller        speller
	judged         bool // the selection matches something

	current      *segment                              // what is written now: the run, or its last segment
	series       series                                // the segments before it
	requests     map[requestKey]ggmlhooks.RequestBegin // newest of every sequence
	room         room
	buffered     atomic.Int64 // bytes of lines that are not in files yet
	ahead        int64        // bytes that the disk is to keep ahead of what is written
	reserve      *reserve
	elementBytes int64 // of an F32 element as it is stored

	warned bool    // the user knows that it ended
	halted *halted // recording has ended before the program

	feed        *feed // nil: no consumer
	checkpoints checkpoints
	before      *before         // nil: the run is new
	resumed     *rundir.Resumed // the same
	replay      *replay         // of a resumed run

	moved   uint64    // what had moved through the shared memory
	movedAt time.Time // when it last did

	steering *steering
	early    bool // recording ended before the program, by a command
	ended    bool // the files are closed, as far as that could be done
}

func newSink(o Options, region *collect.Region, b budget, start collect.Wish) *sink {
	s := &sink{o: o, region: region, budget: b, started: time.Now()}
	s.clock = rundir.Clock{UnixNS: s.started.UnixNano(), MonoNS: monotonic()}
	s.requests = map[requestKey]ggmlhooks.RequestBegin{}
	s.speller = speller{vocabs: map[uint32]*gguf.Vocab{}, mute: o.Tap.RedactText}
	s.room = room{tap: o.Tap, use: s.used, beside: func() int64 { return s.dir.Written() + s.buffered.Load() }, give: s.removeOldest, spare: s.limitAhead, statfs: unix.Statfs}
	s.steering = newSteering(s, start)
	s.reader = collect.NewReader(region, s.steering)
	s.tee.Assembler = ggmlhooks.NewAssembler(0)
	s.Sink = &s.tee
	if o.Tap.Records(config.Regions) {
		s.tee.onEarly = s.keepMaps
	}
	return s
}

// monotonic reads the clock that the tap stamps with.
func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// Context notes a context of the model; the first one makes the run directory.
func (s *sink) Context(c *ggmlhooks.Context) error {
	model, vocab := identify(c)
	s.contexts = append(s.contexts, rundir.Context{
		Ctx: c.Number, Model: model, NCtx: c.NCtx, NBatch: c.NBatch, NUBatch: c.NUBatch, NSeqMax: c.NSeqMax,
		FlashAttn: map[int]string{-1: "auto", 0: "off", 1: "on"}[c.FlashAttn], Type: contextType(c),
	})
	s.speller.vocabs[c.Number] = vocab
	if s.halted != nil {
		return s.Sink.Context(c)
	}
	if s.recorder == nil {
		if err := s.open(model); err != nil {
			return explain(err, s.o.Tap.Out)
		}
	} else if err := s.dir.WriteJSON(rundir.MetadataName, s.beginning()); err != nil { // a context more
		return explain(err, s.o.Tap.Out)
	}
	if err := s.tee.Context(c); err != nil {
		return err
	}
	return s.catchUp()
}

func contextType(c *ggmlhooks.Context) string {
	switch {
	case c.NCtx == 0:
		return "other"
	case c.Recurrent:
		return "recurrent"
	case c.Hybrid:
		return "hybrid"
	}
	return "transformer"
}

// identify reads the model's file for its name and vocabulary. Where it cannot, what llama.cpp reported must do.
func identify(c *ggmlhooks.Context) (rundir.Model, *gguf.Vocab) {
	m := rundir.Model{
		Path: c.Path, Name: c.Name, Arch: c.Arch, SizeBytes: int64(c.ModelBytes), NParams: c.ModelParams,
		NLayer: c.NLayer, NEmbd: c.NEmbd, NHead: c.NHead, NHeadKV: c.NHeadKV, NVocab: c.NVocab,
	}
	if c.FileType >= 0 {
		m.FileType = gguf.FileType(c.FileType).String()
	}
	file := modelFile(c, &m)
	m.ID = rundir.ModelID(m.Name, m.FileType)
	if file == nil {
		return m, nil
	}
	id := gguf.Identify(file, c.Path)
	m.ID, m.FileType = id.ID(), id.FileType
	if m.Name == "" {
		m.Name = id.Name
	}
	if vocab, ok := gguf.ReadVocab(&file.Metadata); ok {
		return m, &vocab
	}
	return m, nil
}

// modelFile reads the header of a context's model and notes where it lies. A model without a path is the embedded
// one if it bears its name; of another one nothing more is known, and nil is returned.
func modelFile(c *ggmlhooks.Context, m *rundir.Model) *gguf.File {
	if c.Path != "" {
		if path, err := filepath.Abs(c.Path); err == nil {
			m.Path = path
		}
		file, err := gguf.Open(c.Path)
		if err != nil {
			return nil
		}
		return file
	}
	file, err := gguf.Read(bytes.NewReader(models.Default), int64(len(models.Default)))
	if err != nil || c.Name == "" || gguf.Identify(file, "").Name != c.Name {
		return nil
	}
	m.Path = "embedded:" + models.DefaultName
	return file
}

// open makes the run directory and the writers into it.
func (s *sink) open(model rundir.Model) error {
	if err := s.openDir(model); err != nil {
		return err
	}
	var err error
	if s.reserve, err = newReserve(s.dir, s.sealBytes()); err != nil {
		return err
	}
	dtype, err := codec.ParseDType(s.o.Tap.DType)
	if err != nil {
		return err
	}
	s.elementBytes = int64(dtype.Size())
	if id, err := codec.Parse(s.o.Tap.Codec); err == nil && id.Bounded() {
		s.elementBytes = int64(codec.F32.Size())
	}
	if s.replay == nil {
		if s.current, err = s.firstSegment(); err != nil {
			return err
		}
	}
	if err := s.checkpoints.begin(s, s.current, s.o.Resume); err != nil {
		return err
	}
	var to capture.Stream = output{s}
	if s.replay != nil {
		to = s.replay
	}
	s.recorder = capture.NewRecorder(capture.Options{
		Selection: s.o.Tap.Selection(), Stream: to, Tokens: tokenOutput{s},
		UnixOffset: s.clock.UnixNS - s.clock.MonoNS, HoldBytes: s.region.PoolBytes() / 2, HoldUnit: collect.SlotBytes,
	})
	others, err := s.openBeside()
	if err != nil {
		return err
	}
	if s.monitor != nil {
		if err := s.monitor.lines.open(s); err != nil {
			return err
		}
	}
	if err := s.tee.open(s.recorder, others); err != nil {
		return err
	}
	return s.room.look(0)
}

// openDir makes the run directory, or opens that of the resumed run.
func (s *sink) openDir(model rundir.Model) (err error) {
	if s.o.Resume != nil {
		return s.resume()
	}
	if s.dir, err = rundir.Create(s.o.Tap.Out, model.ID, s.started); err != nil {
		return err
	}
	if err := s.dir.WriteJSON(rundir.MetadataName, s.beginning()); err != nil || s.o.StateFolder == "" {
		return err
	}
	return os.Rename(s.o.StateFolder, filepath.Join(s.dir.Path(), rundir.StateFolder))
}

// Graph passes a description on, and keeps it until it is known whether every tensor glob names something.
func (s *sink) Graph(g *ggmlhooks.Graph) error {
	if s.halted != nil {
		return s.Sink.Graph(g)
	}
	if s.recorder == nil {
		return fmt.Errorf("%w: a graph without a context", ggmlhooks.ErrDesync)
	}
	if g.Tokens > 0 && !s.judged {
		if err := s.o.Tap.CheckLayers(layers(g)); err != nil {
			return fmt.Errorf("%w: %w", ErrSelection, err)
		}
		if err := s.judge(g); err != nil {
			return err
		}
	}
	return s.tee.Graph(g)
}

// layers is the number of layers that a graph has.
func layers(g *ggmlhooks.Graph) int {
	n := 0
	for i := range g.Nodes {
		n = max(n, g.Nodes[i].Layer+1)
	}
	return n
}

// judge refuses a selection that matches nothing, at the first graph of tokens: the model waits for this judgement.
// What the model had measured before counts too, so that a name may be one of a later graph.
func (s *sink) judge(g *ggmlhooks.Graph) error {
	s.judged = true
	tap := s.o.Tap
	if tap.StartOff || !tap.Records(config.Activations) || g.Selection != 0 {
		return nil // what is captured now, or never was, has no hits to judge by
	}
	for i, glob := range tap.Tensors {
		if s.region.GlobHits(i) == 0 {
			return fmt.Errorf("%w: --tap-tensors %q matches no node of this model; these names exist: %s", ErrSelection, glob, globNames(g, anyNode))
		}
	}
	if s.region.Matched() > 0 {
		return nil
	}
	names := globNames(g, func(n *ggmlhooks.Node) bool { return n.Computed && allows(tap, n) })
	if names == "" || tap.AttentionAlone() {
		names = globNames(g, anyNode) + " (of other layers and components)"
	}
	return fmt.Errorf("%w: no node of this model matches %s; these names exist: %s", ErrSelection, selectionText(tap), names)
}

func anyNode(*ggmlhooks.Node) bool { return true }

// allows reports whether granularity and layers allow a node.
func allows(tap *config.Tap, n *ggmlhooks.Node) bool {
	switch {
	case tap.Granularity == ggmlhooks.AttentionOnly && n.Component != ggmlhooks.ComponentAttention,
		tap.Granularity == ggmlhooks.MLPOnly && n.Component != ggmlhooks.ComponentMLP:
		return false
	}
	return tap.Layers.Empty() || tap.Layers.Has(n.Layer)
}

// selectionText names the settings that together match nothing.
func selectionText(tap *config.Tap) string {
	var parts []string
	if tap.AttentionAlone() {
		parts = append(parts, "attention "+tap.Attention.String())
	} else if tap.Granularity != ggmlhooks.FullTensor {
		parts = append(parts, "granularity "+tap.Granularity.String())
	}
	if !tap.Layers.Empty() {
		parts = append(parts, "layers "+tap.Layers.String())
	}
	if len(tap.Tensors) > 0 {
		parts = append(parts, "tensors "+strings.Join(tap.Tensors, ","))
	}
	return strings.Join(parts, " with ")
}

// ExecEnd ends a micro-batch, the place where a segment may end.
func (s *sink) ExecEnd(e ggmlhooks.ExecEnd) error {
	if err := s.Sink.ExecEnd(e); err != nil {
		return err
	}
	if s.current != nil && s.halted == nil && s.caughtUp() {
		if err := s.checkpoints.turn(s.current.stream, len(s.steering.changes) > 0); err != nil {
			return err
		}
	}
	if s.recorder != nil && s.halted == nil {
		if err := s.room.tick(); err != nil {
			return err
		}
	}
	return s.turn()
}

// idle is what is done when nothing has come for a while, or between two looks: held packets are written if the
// model waits for their slots, a segment may end by its time, and the disk is looked at.
func (s *sink) idle() error {
	s.host.idle()
	if s.halted == nil {
		if err := s.samples.idle(); err != nil {
			return err
		}
	}
	if s.recorder == nil || s.halted != nil {
		return nil
	}
	if s.stuck() {
		if err := s.recorder.Relieve(); err != nil {
			return err
		}
	}
	if err := s.consumerLost(); err != nil {
		return err
	}
	if err := s.steering.serve(); err != nil {
		return err
	}
	if err := s.ledger.tick(); err != nil {
		return err
	}
	if err := s.reserve.grow(s.sealBytes()); err != nil {
		return err
	}
	if err := s.room.tick(); err != nil {
		return err
	}
	return s.turn()
}

// stuckAfter is how long a model waits for slots, and nothing moves, before what is held back is taken for the
// reason. A model that waits because pages are not touched yet, or for a collector that had no core, goes on by
// itself: what is written must not depend on that.
const stuckAfter = time.Second

// stuck reports whether the model waits for slots and none will come back, since all that it waits for are held. The
// bound on what is held lets that happen only where the slots that are left lie apart.
func (s *sink) stuck() bool {
	moved, waits := s.region.Moved()
	if now := time.Now(); !waits || moved != s.moved || s.movedAt.IsZero() {
		s.moved, s.movedAt = moved, now
		return false
	} else if now.Sub(s.movedAt) < stuckAfter {
		return false
	}
	return s.samples == nil || s.samples.pages == nil // else a model that waits does not lack room
}

func (s *sink) path() string {
	if s.dir == nil {
		return ""
	}
	return s.dir.Path()
}
