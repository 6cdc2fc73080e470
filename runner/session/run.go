//go:build linux

package session

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/otlp"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// run is what every part of a session uses of the run: what was asked for, the process, the directory and the models.
type run struct {
	o        Options
	region   *collect.Region
	pid      int // of the process that was started
	started  time.Time
	clock    rundir.Clock
	dir      *rundir.Dir     // nil until the first context
	resumed  *rundir.Resumed // nil: the run is new
	contexts []rundir.Context
	points   []ggmlhooks.PointRecord // that graphs had so far
	attached []capture.Attention     // what maps of their attention are made of
	steered  []rundir.Steering       // control vectors of an armed run, by number; nil: it is not armed
	speller  speller
	export   *otlp.Settings                 // of requests to OpenTelemetry; nil: none
	sample   *sampler                       // of requests; nil: all stay
	chosen   map[uint32]ggmlhooks.Selection // by number, of commands that changed what is captured
	upload   *uploader                      // to object storage; nil: none
}

func newRun(o Options, region *collect.Region) *run {
	r := &run{o: o, region: region, started: time.Now(), chosen: map[uint32]ggmlhooks.Selection{}}
	r.clock = rundir.Clock{UnixNS: r.started.UnixNano(), MonoNS: stream.MonoNS()}
	r.speller = speller{vocabs: map[uint32]*gguf.Vocab{}, mute: o.Tap.RedactText}
	return r
}

// choose changes what the tap captures from the model's next graph on.
func (r *run) choose(w collect.Wish) (number uint32, err error) {
	if number, err = r.region.Select(w); err == nil {
		r.chosen[number] = w.Selection
	}
	return number, err
}

// selected is the selection of a number; nil: that of the start.
func (r *run) selected(number uint32) *ggmlhooks.Selection {
	if s, ok := r.chosen[number]; ok {
		return &s
	}
	return nil
}

// unixOffset is what is added to the tap's clock to get Unix time, in ns.
func (r *run) unixOffset() int64 { return r.clock.UnixNS - r.clock.MonoNS }

// addContext notes a context of the model.
func (r *run) addContext(c *ggmlhooks.Context) {
	model, vocab := identify(c)
	kind := "transformer"
	switch {
	case c.NCtx == 0:
		kind = "other"
	case c.Recurrent:
		kind = "recurrent"
	case c.Hybrid:
		kind = "hybrid"
	}
	r.contexts = append(r.contexts, rundir.Context{
		Ctx: c.Number, Model: model, NCtx: c.NCtx, NBatch: c.NBatch, NUBatch: c.NUBatch, NSeqMax: c.NSeqMax,
		FlashAttn: map[int]string{-1: "auto", 0: "off", 1: "on"}[c.FlashAttn], Type: kind,
	})
	r.speller.vocabs[c.Number] = vocab
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
	file, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil || c.Name == "" || gguf.Identify(file, "").Name != c.Name {
		return nil
	}
	m.Path = "embedded:" + llamatap.DefaultModelName
	return file
}

// create makes the run directory.
func (r *run) create() (err error) {
	if r.dir, err = rundir.Create(r.o.Tap.Out, r.contexts[0].Model.ID, r.started); err != nil {
		return err
	}
	if err := r.dir.WriteJSON(rundir.MetadataName, r.beginning()); err != nil || r.o.StateFolder == "" {
		return err
	}
	return os.Rename(r.o.StateFolder, filepath.Join(r.dir.Path(), rundir.StateFolder))
}

// path is the run directory, "" while there is none.
func (r *run) path() string {
	if r.dir == nil {
		return ""
	}
	return r.dir.Path()
}

// vanished reports whether the run directory was taken away.
func (r *run) vanished() bool {
	_, err := os.Lstat(r.dir.Path())
	return errors.Is(err, fs.ErrNotExist)
}

// describe says of a stretch of the run what is known while it continues.
func (r *run) describe(use capture.Use) rundir.Metadata {
	m := rundir.Metadata{
		Version: rundir.MetadataVersion, Llamatap: r.o.Version, Ended: time.Now().UTC(), SealedBy: "collector",
		Command:  r.o.Echo,
		Contexts: slices.Clone(r.contexts), Host: rundir.ThisHost(), Config: r.o.Tap.Echo(), Clock: r.clock,
		Llama:  rundir.Llama{Prefix: r.o.Llama.Prefix},
		Phases: map[string]rundir.PhaseUse{}, Extra: map[string]json.RawMessage{},
	}
	if r.o.Tap.RedactText {
		m.Command = redactCommand(r.o.Echo)
	}
	m.Llama.Version, m.Llama.GGML = r.region.Versions()
	if len(r.contexts) > 0 {
		m.Model = r.contexts[0].Model
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
		Prompt: use.Prompt(), Generated: use.Generated(), Setup: use.Rows[ggmlhooks.PhaseSetup],
		Drafts:   use.Drafts[ggmlhooks.PhasePrefill] + use.Drafts[ggmlhooks.PhaseDecode],
		Rejected: use.Rejected,
		Requests: use.Requests,
	}
	extra(&m, "entry_points_missing", r.region.Missing())
	extra(&m, "structures_unknown", r.region.Layouts())
	if others := r.region.Found().Others; others > 0 {
		extra(&m, "processes_not_recorded", others)
	}
	extra(&m, "attention", use.Attached)
	extra(&m, "points", use.Points)
	if len(use.Paths) > 0 {
		extra(&m, "capture_paths", use.Paths)
	}
	if turns := r.region.Turns(); len(turns) > 0 {
		extra(&m, "turns_ns", turns)
	}
	return m
}

// beginning is metadata.json of a run that has only begun, so that a run whose collector is killed is known by more
// than its tensors. How it ended and what it did is absent.
func (r *run) beginning() rundir.Metadata {
	m := r.describe(capture.Use{})
	m.RunID, m.Created, m.Resumed, m.Steering = r.dir.ID(), r.started.UTC(), r.resumed, r.steered
	m.Ended, m.SealedBy, m.Losses = time.Time{}, "", []rundir.Loss{}
	m.Phases, m.Tokens = nil, nil
	clear(m.Extra)
	extra(&m, "points", r.points)
	extra(&m, "attention", r.attached)
	m.Moved = r.upload.movedOf()
	return m
}

// streamUse is what a stream holds.
func (r *run) streamUse(written stream.Stats) rundir.Stream {
	use := rundir.Stream{
		Name: StreamName, Packets: written.Packets, BytesSource: written.SrcBytes, BytesRaw: written.RawBytes,
		BytesStored: written.Stored,
		Saturated:   written.Saturated, Underflow: written.Underflow, Codec: r.o.Tap.Codec, DType: r.o.Tap.DType,
	}
	if id, err := codec.Parse(r.o.Tap.Codec); err == nil && id.Bounded() {
		use.DType, use.Error, use.ErrorMetric = codec.F32.String(), &r.o.Tap.Error, r.o.Tap.ErrorMetric
		use.MaxAbs, use.NRMSE = &written.Error.MaxAbs, &written.Error.NRMSE
	}
	return use
}

// extra adds to metadata what has no field of its own; an empty list is left out.
func extra(m *rundir.Metadata, name string, v any) {
	text, err := json.Marshal(v)
	if err == nil && string(text) != "null" && string(text) != "[]" {
		m.Extra[name] = text
	}
}

// dropStates removes the folder of a program that recorded nothing.
func (r *run) dropStates() {
	if r.o.StateFolder != "" && r.dir == nil {
		os.RemoveAll(r.o.StateFolder)
	}
}
