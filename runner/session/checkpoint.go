//go:build linux

package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// Repeat says what is needed to run the same program again; a checkpoint holds it.
type Repeat struct {
	Program string   // run, or the name of a program that cannot be resumed
	Args    []string // of llamatap run
	Folder  string   // in which they were given
	Model   string   // fingerprint of the model's file
	Seed    uint32   // that was chosen for it where it asked for a random one; else 0
}

// checkpoints notes where a run could be resumed from. Tokens are passed to it by the goroutine that records; what is
// written is written beside it, one checkpoint at a time.
type checkpoints struct {
	path    string // "": none are made
	states  string // folder of the states that the program keeps
	every   int64
	stamp   rundir.Checkpoint // what is the same in all of them
	fresh   []rundir.TokenRecord
	count   int64 // of tokens
	saved   int64 // of these, in checkpoints
	writing chan error
}

// begin makes the first checkpoint, without a token: it holds what a run is.
func (c *checkpoints) begin(r *run, g *segment) error {
	before := r.o.Resume
	if r.o.Tap.Checkpoint.Every == 0 {
		return nil
	}
	dir, err := filepath.Abs(r.dir.Path())
	if err != nil {
		return err
	}
	c.path, c.every = r.o.Tap.Checkpoint.Path, int64(r.o.Tap.Checkpoint.Every)
	if c.path == "" {
		c.path = filepath.Join(dir, StreamName+rundir.CheckpointSuffix)
	}
	c.states = filepath.Join(dir, rundir.StateFolder)
	c.stamp.Metadata.StartTime = rundir.Seconds(r.started)
	if before != nil {
		c.stamp.Metadata.StartTime = before.Metadata.StartTime
		c.stamp.Metadata.ResumeCount = before.Metadata.ResumeCount + 1
	}
	c.stamp.Run = rundir.CheckpointRun{
		Dir: dir, Program: r.o.Repeat.Program, Args: r.o.Repeat.Args, Folder: r.o.Repeat.Folder,
		Model: r.o.Repeat.Model, Seed: r.o.Repeat.Seed,
		Settings: Settings(r.o.Tap), Llama: r.o.Llama.Version,
	}
	if r.o.Tap.RedactText {
		c.stamp.Run.Args = nil
	}
	if before != nil {
		return nil // the one before holds until this run has come as far
	}
	return c.write(g.stream, c.next())
}

// Settings are the settings that a run must have to be the same one, as stored in a checkpoint.
func Settings(t *config.Tap) map[string]any {
	settings := map[string]any{}
	for key, s := range t.Echo().Settings {
		switch key {
		case "out", "resume", "checkpoint_every", "checkpoint_path", "checkpoint_state", "sync", "on_failure",
			"max_disk",
			"min_free", "preallocate", "workers", "throughput", "config", "sink":
			continue // they change nothing of what is recorded
		}
		var plain any // as reading the file gives it
		if text, err := json.Marshal(s.Value); err == nil && json.Unmarshal(text, &plain) == nil {
			settings[key] = plain
		}
	}
	return settings
}

// note takes a token that is on its way into the files.
func (c *checkpoints) note(t rundir.TokenRecord, new bool) {
	c.count++
	switch {
	case c.path == "":
	case new:
		c.fresh = append(c.fresh, t)
	default:
		c.saved = c.count
	}
}

// writeIfDue makes a checkpoint when it is time for one and the one before is written.
func (c *checkpoints) writeIfDue(w *stream.Writer, changed bool) error {
	if c.path == "" {
		return nil
	}
	select {
	case err := <-c.writing:
		c.writing = nil
		if err != nil {
			return err
		}
	default:
	}
	if c.writing != nil || c.count-c.saved < c.every {
		return nil
	}
	next := c.next()
	next.Run.Changed = changed
	c.writing = make(chan error, 1)
	done := c.writing
	go func() { done <- c.write(w, next) }()
	return nil
}

// next returns a checkpoint of what has been counted.
func (c *checkpoints) next() rundir.Checkpoint {
	next := c.stamp
	next.TotalTokens, next.FirstToken, next.Tokens = c.count, c.count-int64(len(c.fresh)), c.fresh
	if next.Tokens == nil {
		next.Tokens = []rundir.TokenRecord{}
	}
	c.fresh, c.saved = nil, c.count
	return next
}

// write syncs what was recorded and then writes the checkpoint that says so. States that nobody resumes from any more
// are removed: a later one has all of its tokens on the disk.
func (c *checkpoints) write(w *stream.Writer, next rundir.Checkpoint) error {
	mark, err := w.Sync()
	if err != nil {
		return err
	}
	synced, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	now := rundir.Seconds(time.Now())
	next.Run.Synced, next.LastCheckpointTime, next.Metadata.UpdatedAt = synced, now, now
	if err := next.Write(c.path); err != nil {
		return err
	}
	held := false
	for _, n := range rundir.States(c.states) {
		if held {
			rundir.RemoveState(c.states, n) // another time, if not now
		}
		held = held || n <= next.TotalTokens
	}
	return nil
}

// last makes the checkpoint of a run that ends, while its stream can still be synced, unless nothing is new.
func (c *checkpoints) last(w *stream.Writer, changed bool) error {
	if c.path == "" {
		return nil
	}
	if c.writing != nil {
		if err := <-c.writing; err != nil {
			return err
		}
		c.writing = nil
	}
	if len(c.fresh) == 0 {
		return nil
	}
	next := c.next()
	next.Run.Changed = changed
	return c.write(w, next)
}

// drop removes the checkpoint of a run that has ended by itself: there is nothing to resume.
func (c *checkpoints) drop() {
	if c.path != "" {
		os.RemoveAll(c.states) // before the checkpoint, without which nobody looks for them
		os.Remove(c.path)
	}
}
