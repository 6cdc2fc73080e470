//go:build linux

package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace/regions"
	"github.com/llamatap/llamatap/models"
	"github.com/llamatap/llamatap/store/rundir"
)

// regionMap is the recorder of regions with the file that it writes.
type regionMap struct {
	*regions.Recorder
	file io.WriteCloser
}

// openRegions makes the recorder. Its file appears when it is closed.
func (s *sink) openRegions() (*regionMap, error) {
	file, err := s.dir.Create(rundir.RegionsName)
	if err != nil {
		return nil, err
	}
	s.regions = &regionMap{file: file, Recorder: regions.NewRecorder(regions.Options{
		Out: file, UnixOffset: s.clock.UnixNS - s.clock.MonoNS, Now: monotonic, Model: mappedModel,
		Maps: s.readMaps,
	})}
	return s.regions, nil
}

// keepMaps keeps what the model's process has mapped: it may have ended before there is a run directory.
func (s *sink) keepMaps() {
	name := fmt.Sprintf("/proc/%d/maps", s.steering.pid)
	text, err := os.ReadFile(name)
	if after, failed := os.ReadFile(name); err == nil && failed == nil && len(text) > 0 && len(after) > 0 { // else it ended meanwhile
		s.maps = text
	}
}

// readMaps is what the model's process has mapped, or had when that could last be seen.
func (s *sink) readMaps() (io.Reader, error) {
	s.keepMaps()
	if len(s.maps) == 0 {
		return nil, fmt.Errorf("the maps of process %d: %w", s.steering.pid, os.ErrNotExist)
	}
	return bytes.NewReader(s.maps), nil
}

// mappedModel reads the header of a file that is mapped. A model that lies in memory alone is the embedded one, or
// not known.
func mappedModel(path string) (*gguf.File, error) {
	if strings.HasPrefix(path, "/memfd:"+models.DefaultName) {
		return gguf.Read(bytes.NewReader(models.Default), int64(len(models.Default)))
	}
	return gguf.Open(path)
}

// Close writes the table and ends the file.
func (r *regionMap) Close() error { return errors.Join(r.Recorder.Close(), r.file.Close()) }

// words say how much of what was executed is in the map.
func (r *regionMap) words() string {
	regions, doubts := len(r.Map().Regions()), r.Doubts()
	text := fmt.Sprintf("regions   %d of memory, used by %d graphs", regions, doubts.Executions)
	if n := doubts.Unplaced + doubts.Overlaps + doubts.Failed; n > 0 {
		text += fmt.Sprintf("; %d operands or graphs could not be placed", n)
	}
	return text
}
