package tensors

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// Causes of what is lost of a recording that a repair found: cut off the end of a stream, as its index says, or gone in
// another way.
const (
	causeCutOff  = "cut_off"
	causeDamaged = "damaged"
)

// goneText says that a file of the manifest is gone, or a whole segment.
func goneText(path, name string, listed []rundir.Segment) string {
	return cmp.Or(goneSegment(path, name, listed), name+" is gone")
}

// goneSegment says of the manifest of a segment that is gone as a whole what is gone with it, as far as the run's
// metadata list that; "" of any other file.
func goneSegment(path, name string, listed []rundir.Segment) string {
	folder, ofSegment := strings.CutSuffix(name, "/"+rundir.ManifestName)
	if !ofSegment || exists(filepath.Join(path, folder)) {
		return ""
	}
	text := folder + " is gone, with all of its files"
	for _, s := range listed {
		if s.Name == folder {
			text += fmt.Sprintf(": %s and %s", present.Plural(s.Tokens, "token"), present.Plural(s.Packets, "packet"))
		}
	}
	return text
}

// describeJoined describes a run without a stream of its own by its segments, which are repaired, or by nothing where
// none is left. Where object storage alone has some, it counts nothing: how much they hold in memory is not known here.
func describeJoined(r *repairer) error {
	names, err := rundir.Segments(r.path)
	if err != nil || len(names)+len(r.meta.Segments)+len(r.meta.Streams) == 0 || r.moved != nil {
		return err
	}
	s := stream.Join()
	if run, err := openSegments(r.path); err == nil {
		s = run.Stream
	} else if !errors.Is(err, ErrNotARun) {
		return err
	}
	defer s.Close()
	if r.meta.Rotated == nil {
		r.describe(s)
	}
	return recount(r, s)
}

// recount puts what the account has as captured, and the stream has not, to what is lost. Where an index was made
// anew, whether a tensor was of a warm-up, and how large it was in memory, may be assumed: then the account stays.
func recount(r *repairer, s *stream.Reader) error {
	a := r.meta.Account
	if a == nil {
		return nil
	}
	var now rundir.Amount
	rebuilt := false
	for _, p := range s.Packets() {
		if p.Phase != label.PhaseSetup {
			now.Packets, now.Bytes = now.Packets+1, now.Bytes+uint64(p.SrcBytes)
		}
		rebuilt = rebuilt || p.Rebuilt
	}
	if err := s.Err(); err != nil || rebuilt || now.Packets > a.Captured.Packets || now.Bytes > a.Captured.Bytes {
		return err
	}
	lost := rundir.Amount{Packets: a.Captured.Packets - now.Packets, Bytes: a.Captured.Bytes - now.Bytes}
	if lost == (rundir.Amount{}) {
		return nil
	}
	cut := newlyCut(s, a)
	if cut.Packets >= lost.Packets {
		cut = lost
	}
	cut.Bytes = min(cut.Bytes, lost.Bytes)
	a.AddLost(causeCutOff, cut.Packets, cut.Bytes)
	a.AddLost(causeDamaged, lost.Packets-cut.Packets, lost.Bytes-cut.Bytes)
	a.Captured, r.meta.Losses = now, a.Lost
	return nil
}

// newlyCut is what was cut off a stream and is not yet in the account.
func newlyCut(s *stream.Reader, a *rundir.Account) (cut rundir.Amount) {
	for _, l := range s.Info().Losses {
		if l.Cause == causeCutOff {
			cut = rundir.Amount{Packets: l.Packets, Bytes: l.Bytes}
		}
	}
	for _, l := range a.Lost {
		if l.Cause == causeCutOff {
			cut.Packets, cut.Bytes = cut.Packets-min(cut.Packets, l.Packets), cut.Bytes-min(cut.Bytes, l.Bytes)
		}
	}
	return cut
}
