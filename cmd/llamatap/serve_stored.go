package main

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/store/object"
	"github.com/llamatap/llamatap/store/rundir"
)

// storedRuns are the sealed runs in a place in object storage, for a server. A run is copied into the user's cache when
// somebody looks at it.
type storedRuns struct {
	from  *object.Store
	cache object.Cache

	listing sync.Mutex // guards what follows
	at      time.Time  // of the last list
	runs    []server.Run
	known   map[string]server.Run // by URL: a sealed run stays what it is
	places  map[string]*object.Store

	fetching sync.Mutex
	copies   map[string]string // directories by id
}

// listEvery is how old a list of runs may be: a browser asks for it every few seconds.
const listEvery = 10 * time.Second

// newStoredRuns lists the runs once.
func newStoredRuns(url string) (*storedRuns, error) {
	from, cache, err := openCached(url)
	if err != nil {
		return nil, err
	}
	s := &storedRuns{from: from, cache: cache, known: map[string]server.Run{}, places: map[string]*object.Store{},
		copies: map[string]string{}}
	if _, err = s.Runs(); err == nil && len(s.runs) == 0 {
		err = object.ErrNoRun
	}
	return s, err
}

// Runs lists the runs, newest first. Of one that is new it reads the metadata.
func (s *storedRuns) Runs() ([]server.Run, error) {
	s.listing.Lock()
	defer s.listing.Unlock()
	if time.Since(s.at) < listEvery {
		return slices.Clone(s.runs), nil
	}
	ctx := context.Background() // every request is bounded by cachePatience
	places, err := s.from.Runs(ctx)
	if err != nil {
		return nil, err
	}
	runs := []server.Run{}
	for _, p := range places {
		run, ok := s.known[p.String()]
		if !ok {
			files, metadata, err := p.Contents(ctx)
			if err != nil {
				return nil, err
			}
			if metadata == nil {
				continue // it is being copied
			}
			run = storedRun(p, files)
			s.known[p.String()], s.places[run.ID] = run, p
		}
		runs = append(runs, run)
	}
	s.runs, s.at = slices.CompactFunc(runs, func(a, b server.Run) bool { return a.ID == b.ID }), time.Now()
	return slices.Clone(s.runs), nil
}

// storedRun describes a sealed run by its files.
func storedRun(p *object.Store, files []rundir.File) server.Run {
	run := server.Run{ID: path.Base(p.String()), Model: path.Base(p.Parent()), State: resources.StateSealed}
	events, ext, _ := strings.Cut(rundir.EventsName, ".")
	for _, f := range files {
		if strings.HasPrefix(f.Name, events+".") && strings.HasSuffix(f.Name, "."+ext) {
			run.Events, run.LogBytes = true, run.LogBytes+f.Size
		}
	}
	return run
}

// Fetch copies a run, one at a time, and returns the copy.
func (s *storedRuns) Fetch(id string) (string, error) {
	s.fetching.Lock()
	defer s.fetching.Unlock()
	if dir := s.copies[id]; dir != "" {
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
	}
	s.listing.Lock()
	place := s.places[id]
	s.listing.Unlock()
	dir, err := place.Fetch(context.Background(), s.cache)
	if err == nil {
		s.copies[id] = dir
	}
	return dir, err
}
