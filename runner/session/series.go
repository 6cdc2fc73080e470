//go:build linux

package session

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

// series are the segments of a run that are done with, the one that is being sealed beside the recording, and what was
// given back or moved to object storage.
type series struct {
	run     *run
	places  []rundir.Segment  // that are there, in order
	away    []rundir.Segment  // that were moved, in order: those before places
	holds   []ggmlhooks.Count // tensors of the run that each of them holds
	last    *int64            // the newest token of all of them
	written stream.Stats      // of all of them, those that were given back included
	kept    ggmlhooks.Count   // tensors of the run that they hold, with those that were given back
	failure error             // why one had to be mended
	ending  *ending           // nil: none
	rotated rundir.Rotated    // what was given back
	gone    ggmlhooks.Count   // tensors of the run that it held
}

// ending is a segment that is being sealed in a goroutine of its own, so that the model is not held up.
type ending struct {
	segment *segment
	size    int64 // the most that it takes
	seal    func() error
	done    chan error // one error, or nil
}

// poll takes note of a segment that has been sealed meanwhile.
func (r *series) poll() error {
	if r.ending == nil {
		return nil
	}
	select {
	case err := <-r.ending.done:
		return r.ended(err)
	default:
		return nil
	}
}

// wait waits for the segment that is being sealed. One that could not be is tried again: there may be room now.
func (r *series) wait() error {
	if r.ending == nil {
		return nil
	}
	err := <-r.ending.done
	if err != nil {
		err = r.ending.seal()
	}
	return r.ended(err)
}

// ended puts the segment to the others. After an error it stays what it was, for wait to try again.
func (r *series) ended(err error) error {
	g := r.ending.segment
	if err != nil {
		r.ending.done <- err
		return fmt.Errorf("seal %s: %w", g.place.Name, err)
	}
	r.ending = nil
	r.add(g)
	r.written = addStats(r.written, *g.result)
	r.kept.Add(g.kept)
	r.failure = errors.Join(r.failure, g.failure)
	return nil
}

// add puts a sealed segment to those that are there.
func (r *series) add(g *segment) {
	r.places, r.holds = append(r.places, g.place), append(r.holds, g.kept)
	r.run.sample.sealed(g.place.Number)
	r.last = cmp.Or(g.place.LastToken, r.last)
}

// removeOldest removes what is oldest in the run, a sealed segment or a whole part of a table or of events, to make
// room. It waits for a segment that is being sealed, if there is nothing else. Of a run that is copied to object
// storage it removes only what the store has.
func (r *series) removeOldest(cause string) bool {
	if r.run.o.Tap.MaxDisk.Action != config.DiskRotate {
		return false
	}
	if r.run.upload.copies() {
		return r.moveOldest()
	}
	for {
		name, f := rundir.Oldest(r.run.dir)
		if e := r.ending; e != nil && (name == "" || name == e.segment.place.Name) {
			if r.wait() != nil {
				return false
			}
			continue
		}
		if name == "" || r.remove(name, f.Size) != nil {
			return false
		}
		r.note(cause)
		return true
	}
}

// moveOldest leaves what is oldest to object storage, if it was copied there and read back. metadata.json names it
// before it is removed, so that a repair of a run that is killed then lists it.
func (r *series) moveOldest() bool {
	name, f := rundir.Oldest(r.run.dir)
	if name == "" || !r.run.upload.has(f) {
		return false
	}
	bytes := f.Size
	at := slices.IndexFunc(r.places, func(p rundir.Segment) bool { return p.Name == name })
	if at >= 0 {
		bytes = r.places[at].Bytes
	}
	before := r.run.upload.moved
	r.run.upload.note(f, bytes)
	if r.run.dir.WriteJSON(rundir.MetadataName, r.run.beginning()) != nil {
		r.run.upload.moved = before
		return false
	}
	if rundir.Move(r.run.dir, name) != nil {
		return false
	}
	if at >= 0 {
		r.away = append(r.away, r.places[at])
		r.places = slices.Delete(r.places, at, at+1)
		r.holds = slices.Delete(r.holds, at, at+1)
	}
	return true
}

// note counts what asked for something that was given back.
func (r *series) note(cause string) {
	now := time.Now().UTC()
	if r.rotated.Causes == nil {
		r.rotated.First, r.rotated.Causes = now, map[string]int{}
	}
	r.rotated.Last = now
	r.rotated.Causes[cause]++
}

// remove removes a segment, or a part of that size, and counts what was in it.
func (r *series) remove(name string, size int64) error {
	if of, _, ok := rundir.PartOf(name); ok {
		rows, err := rowsOf(filepath.Join(r.run.dir.Path(), name))
		if err == nil {
			err = rundir.Remove(r.run.dir, name)
		}
		if err == nil {
			r.rotated.AddPart(of, rows)
			r.rotated.Bytes += size
		}
		return err
	}
	at := slices.IndexFunc(r.places, func(p rundir.Segment) bool { return p.Name == name })
	if at < 0 {
		return fmt.Errorf("%s is not among the segments of the run", name)
	}
	if err := rundir.Remove(r.run.dir, name); err != nil {
		return err
	}
	place := r.places[at]
	if r.rotated.Packets == nil {
		r.rotated.Packets = new(uint64)
	}
	r.rotated.Segments++
	*r.rotated.Packets += place.Packets
	r.rotated.Tokens, r.rotated.Bytes = r.rotated.Tokens+place.Tokens, r.rotated.Bytes+place.Bytes
	r.gone.Add(r.holds[at])
	r.places, r.holds = slices.Delete(r.places, at, at+1), slices.Delete(r.holds, at, at+1)
	return nil
}

// rowsOf counts the rows of a part of a table, or the lines of a part of events.
func rowsOf(path string) (n uint64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if strings.HasSuffix(path, ".parquet") {
		t, err := table.NewReader(file)
		if err != nil {
			return 0, err
		}
		return uint64(t.Rows()), nil
	}
	lines := bufio.NewReader(file)
	for err == nil {
		var chunk []byte
		if chunk, err = lines.ReadSlice('\n'); err == nil {
			n++
		} else if errors.Is(err, bufio.ErrBufferFull) && len(chunk) > 0 {
			err = nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// rotatedOf is what metadata.json says of what was given back; nil: nothing was.
func (r *series) rotatedOf() *rundir.Rotated {
	if r.rotated.First.IsZero() {
		return nil
	}
	all := r.rotated
	all.Parts, all.Causes = maps.Clone(all.Parts), maps.Clone(all.Causes)
	return &all
}

func addStats(a, b stream.Stats) stream.Stats {
	a.Packets, a.SrcBytes = a.Packets+b.Packets, a.SrcBytes+b.SrcBytes
	a.RawBytes, a.Stored = a.RawBytes+b.RawBytes, a.Stored+b.Stored
	a.Saturated, a.Underflow = a.Saturated+b.Saturated, a.Underflow+b.Underflow
	a.Error = a.Error.Or(b.Error)
	a.PackNS, a.WriteNS, a.HashNS = a.PackNS+b.PackNS, a.WriteNS+b.WriteNS, a.HashNS+b.HashNS
	return a
}

// placeBytes is the most that a segment takes in the run's own metadata and manifest.
const placeBytes = 768

// fit gives back what is oldest until what is there keeps within a bound that rotates, with the metadata and the list
// of files to come: what recorders hold until the end is written without asking for room.
func (s *series) fit() {
	bound := s.run.o.Tap.MaxDisk
	if bound.Action != config.DiskRotate || bound.Bytes == 0 {
		return
	}
	room := int64(bound.Bytes) - sealRoom/4 - int64(len(s.places)+len(s.away))*placeBytes
	for rundir.SizeOf(s.run.dir.Path()) > room && s.removeOldest(causeMaxDisk) {
	}
}
