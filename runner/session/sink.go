//go:build linux

package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/models"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// StreamName is the file of captured tensors in a run directory.
const StreamName = "activations.stream"

// sink keeps what the tap tells about contexts, makes the run directory with the first of them, and passes the rest on to the
// recorder.
type sink struct {
	*capture.Recorder
	o        Options
	region   *collect.Region
	budget   budget
	started  time.Time
	clock    rundir.Clock
	dir      *rundir.Dir
	stream   *stream.Writer
	tokens   *rundir.TokensWriter
	recorder *capture.Recorder // nil until the first context
	contexts []rundir.Context
	vocabs   map[uint32]*gguf.Vocab
	firstRun *ggmlhooks.Graph // newest graph with tokens, until the globs are judged
	judged   bool
	hellos   []collect.Hello
}

func newSink(o Options, region *collect.Region, b budget) *sink {
	s := &sink{o: o, region: region, budget: b, started: time.Now(), vocabs: map[uint32]*gguf.Vocab{}}
	s.clock = rundir.Clock{UnixNS: s.started.UnixNano(), MonoNS: monotonic()}
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
	s.vocabs[c.Number] = vocab
	if s.recorder == nil {
		if err := s.open(model); err != nil {
			return explain(err, s.o.Tap.Out)
		}
	}
	return s.recorder.Context(c)
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

// identify reads the model's file for its name and vocabulary. Where it cannot, what llama.cpp told must do.
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

// modelFile reads the header of a context's model and notes where it lies. A model without a path is the embedded one if it bears its
// name; of another one nothing more is known, and nil is returned.
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
	dir, err := rundir.Create(s.o.Tap.Out, model.ID, s.started)
	if err != nil {
		return err
	}
	s.dir = dir
	id, err := codec.Parse(s.o.Tap.Codec)
	if err != nil {
		return err
	}
	dtype, err := codec.ParseDType(s.o.Tap.DType)
	if err != nil {
		return err
	}
	s.stream, err = stream.Create(filepath.Join(dir.Path(), StreamName), stream.Options{
		Workers: s.o.Tap.Workers, Codec: id, DType: dtype, MemoryBound: s.budget.buffers,
		OnWorkerStart: func() { unix.Setpriority(unix.PRIO_PROCESS, 0, 19) },
	})
	if err != nil {
		return err
	}
	if err := s.stream.Flush(); err != nil { // an index with a header can be read, however this process ends
		return err
	}
	if s.tokens, err = rundir.NewTokensWriter(dir); err != nil {
		return err
	}
	s.recorder = capture.NewRecorder(capture.Options{
		Selection: s.o.Tap.Selection(), Stream: s.stream, Tokens: tokenSink{s},
		UnixOffset: s.clock.UnixNS - s.clock.MonoNS, HoldBytes: s.region.PoolBytes() / 2,
	})
	s.Recorder = s.recorder
	return nil
}

// Graph passes a description on, and keeps it until it is known whether every tensor glob names something.
func (s *sink) Graph(g *ggmlhooks.Graph) error {
	if s.recorder == nil {
		return fmt.Errorf("%w: a graph without a context", capture.ErrDesync)
	}
	if g.Tokens > 0 && !s.judged {
		s.firstRun = g
		if err := s.o.Tap.CheckLayers(layers(g)); err != nil {
			return fmt.Errorf("%w: %w", ErrSelection, err)
		}
		if err := s.judgeGlobs(); err != nil {
			return err
		}
	}
	return s.recorder.Graph(g)
}

// layers is the number of layers that a graph has.
func layers(g *ggmlhooks.Graph) int {
	n := 0
	for i := range g.Nodes {
		n = max(n, g.Nodes[i].Layer+1)
	}
	return n
}

// judgeGlobs refuses a tensor glob that matches nothing, as soon as the first graph of the run shows it.
func (s *sink) judgeGlobs() error {
	s.judged = true
	for i, glob := range s.o.Tap.Tensors {
		if s.region.GlobHits(i) == 0 {
			return fmt.Errorf("%w: --tap-tensors %q matches no node of this model; these names exist: %s", ErrSelection, glob, globNames(s.firstRun))
		}
	}
	return nil
}

// tokenSink writes token rows into activations_tokens.json, with the text that the vocabulary gives them.
type tokenSink struct{ s *sink }

func (t tokenSink) Append(ctx uint32, row *ggmlhooks.Row) error {
	record := rundir.TokenRecord{Index: row.Index, ID: row.Token, Phase: rundir.Phase(row.Phase.String()), Pos: row.Pos, Ctx: ctx}
	if vocab := t.s.vocabs[ctx]; vocab != nil && !t.s.o.Tap.RedactText {
		record.SetPiece(vocab.Piece(row.Token))
	}
	record.SetSeqs(row.Seqs)
	if row.Request != ggmlhooks.RequestUnknown {
		record.Request = &row.Request
	}
	return t.s.tokens.Append(record)
}

// recorded is the number of packets on disk.
func (s *sink) recorded() uint64 {
	if s.stream == nil {
		return 0
	}
	return s.stream.Stats().Packets
}

func (s *sink) path() string {
	if s.dir == nil {
		return ""
	}
	return s.dir.Path()
}

// finish ends the recording and, if it went well, seals it. A directory in which nothing could be recorded is removed.
func (s *sink) finish(process *collect.Process, exit collect.Exit, ok bool) error {
	if s.dir == nil {
		return nil
	}
	var errs []error
	if s.recorder != nil && ok {
		errs = append(errs, s.recorder.Finish())
	} else if s.recorder != nil {
		s.recorder.Close()
	}
	for _, loss := range s.region.Stats().Losses {
		errs = append(errs, s.stream.AppendLoss(stream.Loss{Cause: loss.Cause, Packets: loss.Packets, Bytes: loss.Bytes}))
	}
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	if s.tokens != nil {
		errs = append(errs, s.tokens.Close(time.Since(s.started)))
	}
	err := errors.Join(errs...)
	if !ok || err != nil {
		if s.recorded() == 0 {
			os.RemoveAll(s.dir.Path())
			os.Remove(filepath.Dir(s.dir.Path())) // the model's folder, if that was its only run
			s.dir = nil
		}
		return explain(err, s.o.Tap.Out)
	}
	data, index := s.stream.Sums()
	s.dir.AddSum(StreamName, data.Size, data.SHA256)
	s.dir.AddSum(StreamName+stream.IndexSuffix, index.Size, index.SHA256)
	if err := s.dir.WriteJSON(rundir.MetadataName, s.metadata(process, exit)); err != nil {
		return explain(err, s.o.Tap.Out)
	}
	return explain(s.dir.Seal(), s.o.Tap.Out)
}
