package tensors

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// Verification is what Verify found about a run directory or a stream.
type Verification struct {
	Path     string    `json:"path"`
	OK       bool      `json:"ok"` // nothing but notes was found
	Sealed   bool      `json:"sealed"`
	Files    int       `json:"files"`   // as the manifest says
	Packets  int       `json:"packets"` // compared with the index
	Tokens   int64     `json:"tokens"`  // compared with the index
	Findings []Finding `json:"findings"`

	progress func(fraction float64)
}

// Finding is one thing that Verify found.
type Finding struct {
	Kind FindingKind `json:"kind"`
	What string      `json:"what"`
}

// FindingKind says how bad a finding is.
type FindingKind string

// The kinds of findings; all but a note make a verification fail.
const (
	Unsealed FindingKind = "unsealed" // no manifest: not a result
	Damage   FindingKind = "damage"   // not what was written
	Lost     FindingKind = "loss"     // never recorded
	Note     FindingKind = "note"     // nothing wrong with what was recorded
)

// maxFindings bounds how many single tokens or packets are named; the rest is counted.
const maxFindings = 20

// Verify compares everything in a run directory with everything else that describes it: files with the manifest,
// packets with the index, tokens with the index; and reports every recorded loss. Of a stream outside a run
// directory it checks packets and losses. The error is for a path that cannot be looked at; what is wrong with the
// data are findings.
func Verify(path string) (*Verification, error) { return VerifyWith(path, nil) }

// VerifyWith is Verify that reports how far it is: half of it is hashing files, the other half reading packets.
// progress may be nil.
func VerifyWith(path string, progress func(fraction float64)) (*Verification, error) {
	v := &Verification{Path: path, Findings: []Finding{}, progress: progress}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such file or folder: give a run directory", path)
	}
	if err != nil {
		return nil, err
	}
	r := &Run{Path: path, Kind: KindStream}
	name := path
	if info.IsDir() {
		name = filepath.Join(path, rundir.StreamName)
		segments, err := rundir.Segments(path)
		if err != nil {
			return nil, err
		}
		if !recorded(path) && len(segments) == 0 {
			return nil, notARun(path)
		}
		if held, _ := rundir.InUse(path); held && !exists(filepath.Join(path, rundir.ManifestName)) {
			v.add(Unsealed, "the run is live: it can be verified when it has ended")
			return v, nil
		}
		r.Kind, r.tokensPaths = KindRun, []string{filepath.Join(path, rundir.TokensName)}
		v.checkDir(r)
		if err := v.checkSegments(r, segments); err != nil {
			return nil, err
		}
		v.checkOthers(r, exists(name) || len(segments) > 0)
	}
	if exists(name) {
		v.checkStream(r, name)
	}
	lost := func(f Finding) bool { return f.Kind == Lost }
	if m := r.Metadata; m != nil && !slices.ContainsFunc(v.Findings, lost) {
		switch {
		case m.Lossy:
			v.add(Lost, "%s marks the run as lossy", rundir.MetadataName)
		case m.Stopped != nil && m.Stopped.Error != "" && !m.Stopped.Whole:
			v.add(Lost, "recording stopped before the program did: %s", m.Stopped.Cause)
		}
	}
	v.OK = true
	for _, f := range v.Findings {
		v.OK = v.OK && f.Kind == Note
	}
	return v, nil
}

// half reports the first or the second half of the work.
func (v *Verification) half(from float64) func(done, total int64) {
	if v.progress == nil {
		return nil
	}
	return func(done, total int64) { v.progress(from + float64(done)/float64(max(total, 1))/2) }
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (v *Verification) add(kind FindingKind, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{kind, fmt.Sprintf(format, args...)})
}

// checkDir compares the directory with its manifest and reads its metadata.
func (v *Verification) checkDir(r *Run) {
	report, err := rundir.VerifyWith(v.Path, v.half(0))
	if err != nil {
		v.add(Damage, "%v", err)
	}
	v.Sealed, v.Files = report.Sealed, report.Files
	if !report.Sealed && err == nil {
		v.add(Unsealed,
			"there is no %s: the run was cut off before it was sealed, and is not a result",
			rundir.ManifestName)
	}
	for _, name := range report.Changed {
		v.add(Damage, "%s has another size or SHA-256 than the manifest says", name)
	}
	if report.Sealed {
		for _, name := range report.Extra {
			v.add(Note, "%s is not in the manifest: it came later", name)
		}
	}
	r.Sealed = report.Sealed
	switch metadata, err := rundir.ReadMetadata(v.Path); {
	case err == nil:
		r.Metadata = &metadata
	case !errors.Is(err, fs.ErrNotExist): // else the run only starts, or was killed early
		v.add(Damage, "%v", err)
	}
	var moved *rundir.Moved
	var listed []rundir.Segment
	if r.Metadata != nil {
		moved, listed = r.Metadata.Moved.Absent(v.Path), r.Metadata.Segments
	}
	for _, name := range report.Missing {
		if !moved.Has(name) {
			v.add(Damage, "%s", cmp.Or(goneSegment(v.Path, name, listed),
				name+" is in the manifest and not in the directory"))
		}
	}
	if moved != nil {
		v.add(Note, "%s are not here: they were read back from %s, and removed to make room, while the run was "+
			"recorded: verify that URL", moved, moved.To)
	}
	if r.Metadata != nil && report.RunID != "" && r.Metadata.RunID != "" && report.RunID != r.Metadata.RunID {
		v.add(Damage, "%s is of run %q, and %s of run %q", rundir.ManifestName, report.RunID, rundir.MetadataName,
			r.Metadata.RunID)
	}
	if r.Metadata != nil {
		for _, repair := range r.Metadata.Repaired {
			v.add(Note, "it was repaired at %v: %s", repair.At.Format(time.RFC3339), strings.Join(repair.What, "; "))
		}
	}
}

// checkSegments verifies every segment for itself, and notes what was given back to make room.
func (v *Verification) checkSegments(r *Run, segments []string) error {
	for _, name := range segments {
		s, err := Verify(filepath.Join(v.Path, name))
		if errors.Is(err, ErrNotARun) {
			v.add(Unsealed, "%s: there is nothing in it that can be read: it was cut off while it was made or removed",
				name)
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range s.Findings {
			v.add(f.Kind, "%s: %s", name, f.What)
		}
		v.Files, v.Packets, v.Tokens = v.Files+s.Files, v.Packets+s.Packets, v.Tokens+s.Tokens
	}
	if r.Metadata == nil {
		return nil
	}
	if g := r.Metadata.Rotated; g != nil {
		v.add(Note, "given back while it was recorded: %s", g)
	}
	for _, s := range r.Metadata.Segments {
		if !s.Removed.IsZero() {
			v.add(Note, "%s was removed to make room (%s): %s, %s", s.Name, s.RemovedFor,
				present.Plural(s.Packets, "packet"), present.Plural(s.Tokens, "token"))
		}
	}
	return nil
}

// checkStream compares the stream with its index, and the tokens file with it.
func (v *Verification) checkStream(r *Run, name string) {
	var err error
	if r.Stream, err = stream.OpenDamaged(name); err != nil {
		v.add(Damage, "%v", err)
		return
	}
	defer r.Close()
	faults := split(r.Stream.Verify(v.half(0.5))) // the damage of stream and index first, then that of packets
	for i, err := range faults {
		if i == maxFindings {
			v.add(Damage, "and %d more faults of the stream", len(faults)-i)
			break
		}
		v.add(Damage, "%v", err)
	}
	v.Packets = r.Stream.Len()
	for _, l := range r.Losses() {
		v.add(Lost, "%d packets (%d bytes) were not recorded: %s", l.Packets, l.Bytes, l.Cause)
	}
	v.checkGaps(r.Stream)
	if r.Kind == KindRun {
		v.checkTokens(r)
	}
}

// checkGaps reports what a repair could not bring back.
func (v *Verification) checkGaps(s *stream.Reader) {
	for _, g := range s.Info().Gaps {
		v.add(Lost,
			"before packet %d the index was damaged: %d records of tokens, executions or packets are gone (0: it is "+
				"not known how many), and %d bytes of the stream cannot be read",
			g.Packet, g.Records, g.StreamBytes)
	}
	rebuilt := 0
	for _, p := range s.Packets() {
		if p.Rebuilt {
			rebuilt++
		}
	}
	if err := s.Err(); err != nil {
		v.add(Damage, "%v", err)
	}
	if rebuilt > 0 {
		v.add(Lost,
			"of %d packets only name, place and sizes are known: they were found in the stream without their index",
			rebuilt)
	}
}

// split takes joined errors apart.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// checkTokens compares the tokens file with the rows of the index, both ways. Both are read side by side, and in
// memory is what has come in one of them and not yet in the other.
func (v *Verification) checkTokens(r *Run) {
	rows := newRowsAhead(r)
	defer rows.stop()
	faults := 0
	fault := func(format string, args ...any) {
		if faults++; faults <= maxFindings {
			v.add(Damage, rundir.TokensName+": "+format, args...)
		}
	}
	total, err := r.EachToken(func(t *Token) error {
		row, ok := rows.takeRow(t.Index)
		v.Tokens++
		switch {
		case !ok:
			fault("token %d is not in the index, or stands twice", t.Index)
		case row.Token != t.ID:
			fault("token %d has id %d, and the index says %d", t.Index, t.ID, row.Token)
		case t.Pos != nil && *t.Pos != row.Pos:
			fault("token %d has position %d, and the index says %d", t.Index, *t.Pos, row.Pos)
		case t.Seq != nil && (len(row.Seqs) == 0 || *t.Seq != row.Seqs[0]):
			fault("token %d has sequence %d, and the index says %v", t.Index, *t.Seq, row.Seqs)
		case t.Request != nil && *t.Request != row.Request:
			fault("token %d has request %d, and the index says %d", t.Index, *t.Request, row.Request)
		case t.Phase != "" && t.Phase != row.Phase.String():
			fault("token %d has phase %s, and the index says %v", t.Index, t.Phase, row.Phase)
		}
		return nil
	})
	left, least := rows.countUntaken()
	switch {
	case errors.Is(err, fs.ErrNotExist) && left == 0:
		return
	case errors.Is(err, io.ErrUnexpectedEOF):
		fault("it ends in the middle: %v", err)
	case err != nil:
		fault("%v", err)
	case total != v.Tokens:
		fault("total_tokens is %d, and the list has %s", total, present.Plural(v.Tokens, "token"))
	}
	if left > 0 {
		fault("it lacks %s of the index, such as %d", present.Plural(left, "token"), least)
	}
	if faults > maxFindings {
		v.add(Damage, "%s: and %d more faults", rundir.TokensName, faults-maxFindings)
	}
}
