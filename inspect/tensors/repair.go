package tensors

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

// Repair repairs a run directory, with its segments, or a stream and its index, and returns a sentence for everything
// that it found or did; none where nothing had to be done. version is the program's. A live run is refused.
func Repair(path, version string) (what []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		done, err := stream.Repair(strings.TrimSuffix(path, stream.IndexSuffix), stream.Assumed{})
		if err != nil {
			return nil, err
		}
		return done.What, nil
	}
	v, err := Verify(path)
	if err != nil {
		return nil, err
	}
	removed := rundir.RemoveStateFolders(filepath.Dir(filepath.Dir(path)))
	for _, folder := range removed {
		what = append(what, fmt.Sprintf("%s, the states of a run that was killed before it began, is removed", folder))
	}
	// a recorded loss is not
	isDamaged := func(f Finding) bool { return f.Kind == Damage || f.Kind == Unsealed }
	if !slices.ContainsFunc(v.Findings, isDamaged) {
		more, err := removeLeftovers(path)
		return append(what, more...), err
	}
	if c, err := net.Dial("unix", filepath.Join(path, rundir.SocketName)); err == nil {
		return nil,
			errors.Join(
				fmt.Errorf(
					"repair %s: the run is still going on: wait for its end, or end it with 'llamatap ctl %s stop'",
					path, path), c.Close())
	}
	more, err := repairDir(path, version)
	return append(what, more...), err
}

// removeLeftovers removes what a process that was killed has left in a run that is sealed and whole.
func removeLeftovers(path string) (what []string, err error) {
	dir, err := rundir.Mend(path)
	if errors.Is(err, rundir.ErrInUse) {
		return nil, nil // its collector is about to do that
	}
	if err != nil {
		return nil, err
	}
	defer dir.Release()
	left, err := rundir.Leftovers(path)
	if err == nil {
		err = rundir.RemoveLeftovers(path)
	}
	if len(left) > 0 {
		what = append(what, fmt.Sprintf("left by a process that was killed, and removed: %s", strings.Join(left, ", ")))
	}
	if err != nil || !errors.Is(rundir.Resumable(path), rundir.ErrSealed) {
		return what, err
	}
	removed, err := rundir.RemoveCheckpoint(path)
	if removed {
		what = append(what, "the checkpoint is removed: a repaired run is finished and cannot be resumed")
	}
	return what, err
}

// repairer is one directory that is being repaired.
type repairer struct {
	dir     *rundir.Dir
	path    string
	changed map[string]bool // files that are not what the old manifest says
	meta    rundir.Metadata
	moved   *rundir.Moved // what object storage alone has of the run; nil: nothing
	done    rundir.Repair
	lost    bool
	sealed  bool // there is a manifest
	killed  bool // before it could write how it ended, or nobody knows
}

func (r *repairer) note(format string, args ...any) {
	r.done.What = append(r.done.What, fmt.Sprintf(format, args...))
}

func repairDir(path, version string) ([]string, error) {
	report, err := rundir.Verify(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		report = rundir.Report{}
	}
	r := &repairer{path: path, changed: map[string]bool{}, done: rundir.Repair{At: time.Now().UTC(), Llamatap: version}}
	if !report.Sealed {
		r.note("there was no %s that can be read", rundir.ManifestName)
		if report, err = interrupted(path); err != nil {
			return nil, err
		}
	}
	r.sealed = report.Sealed
	var listed []rundir.Segment
	if m, err := rundir.ReadMetadata(path); err == nil {
		r.moved = m.Moved.Absent(path)
		if !slices.Contains(report.Changed, rundir.MetadataName) {
			listed = m.Segments
		}
	}
	for _, name := range report.Missing {
		if r.moved.Has(name) {
			continue
		}
		r.note("%s", goneText(path, name, listed))
		r.lost = true
	}
	for _, name := range report.Changed {
		r.changed[name] = true
		r.lost = r.lost || irreplaceable(path, name)
		r.note("%s was not what the manifest had recorded", name)
	}
	if r.dir, err = rundir.Mend(path); err != nil {
		return nil, err
	}
	if r.moved != nil {
		for _, f := range r.moved.Files {
			rundir.AddMoved(r.dir, f)
		}
	}
	for _, step := range []func() error{r.distrust, r.segments, r.metadata, r.rotated, r.stream, r.table, r.lines,
		r.seal} {
		if err := step(); err != nil {
			return r.done.What, fmt.Errorf("%w; %s is unsealed", err, path)
		}
	}
	return r.done.What, nil
}

// interrupted compares with the manifest that a repair put aside before it was killed: which files are gone, and
// which tables and files of lines are changed. That repair may have changed the others itself, and put aside those
// that are made anew.
func interrupted(path string) (rundir.Report, error) {
	report, err := rundir.VerifyAside(path)
	report.Missing = slices.DeleteFunc(report.Missing, func(name string) bool {
		return slices.Contains([]string{rundir.MetadataName, rundir.TokensName, rundir.StreamName + stream.IndexSuffix},
			name) && !irreplaceable(path, name)
	})
	report.Changed = slices.DeleteFunc(report.Changed, func(name string) bool { return !irreplaceable(path, name) })
	return report, err
}

// irreplaceable reports whether a file is a table, one of lines, or tokens of a run without an index: nothing can bring
// back what it held.
func irreplaceable(path, name string) bool {
	if name == rundir.TokensName {
		return !exists(filepath.Join(path, rundir.StreamName))
	}
	return strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".jsonl")
}

// distrust puts aside what is not what the manifest says, and what cannot be read, and then the manifest: a repair that
// is cut off here and done again trusts neither, and compares tables and lines with the manifest that is aside.
func (r *repairer) distrust() error {
	for _, name := range []string{rundir.MetadataName, rundir.TokensName} {
		if !r.changed[name] || irreplaceable(r.path, name) {
			continue
		}
		if err := r.putAside(name); err != nil {
			return err
		}
	}
	_, err := rundir.MoveToBackup(r.path, rundir.ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *repairer) putAside(name string) error {
	aside, err := rundir.MoveToBackup(r.path, name)
	if err == nil {
		r.note("%s is %s now, and is made anew with what is certain", name, aside)
	}
	return err
}

// segments repairs every segment for itself.
func (r *repairer) segments() error {
	names, err := rundir.Segments(r.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		what, err := Repair(filepath.Join(r.path, name), r.done.Llamatap)
		if errors.Is(err, ErrNotARun) {
			if os.Remove(filepath.Join(r.path, name)) == nil {
				r.note("%s was empty, and is removed", name)
			} else {
				r.note("%s: there is nothing in it that can be read; it is left alone", name)
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, w := range what {
			r.note("%s: %s", name, w)
		}
		r.lost = r.lost || len(what) > 0
		if err := r.dir.AddSegment(name); err != nil {
			return err
		}
	}
	return nil
}

// metadata reads what the run said of itself. What cannot be read, or was changed later, is put aside, and begins
// anew with what is certain.
func (r *repairer) metadata() error {
	m, err := rundir.ReadMetadata(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.ofSegment():
	case errors.Is(err, fs.ErrNotExist):
		r.note("there was no %s: what ran, where and how is unknown", rundir.MetadataName)
	case err == nil:
		r.meta = m
	default:
		r.note("%v", err)
		if err := r.putAside(rundir.MetadataName); err != nil {
			return err
		}
	}
	r.killed = r.meta.Ended.IsZero()
	r.meta.Version = rundir.MetadataVersion
	if r.meta.RunID == "" {
		r.meta.RunID = r.dir.ID()
	}
	if r.meta.SealedBy == "" {
		r.meta.SealedBy = "llamatap verify --repair"
	}
	if r.meta.Losses == nil {
		r.meta.Losses = []rundir.Loss{}
	}
	return nil
}

// ofSegment takes over what the run's metadata say that holds for all of its segments; false where this is none.
func (r *repairer) ofSegment() bool {
	full, err := filepath.Abs(r.path)
	if err != nil || r.dir.ID() == filepath.Base(full) {
		return false
	}
	m, err := rundir.ReadMetadata(filepath.Dir(full))
	if err != nil {
		return false
	}
	r.meta = rundir.Metadata{
		Llamatap: m.Llamatap, RunID: r.dir.ID(), Created: m.Created, Command: m.Command, Model: m.Model,
		Contexts: m.Contexts, Llama: m.Llama,
		Host: m.Host, Config: m.Config, Clock: m.Clock,
	}
	r.note("there was no %s: what ran, where and how is that of the run", rundir.MetadataName)
	return true
}

// stream repairs the stream, and the tokens with it. An index alone is what is left of a run whose collector was
// about to remove both, for no tensors were recorded.
func (r *repairer) stream() error {
	path := filepath.Join(r.path, rundir.StreamName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path + stream.IndexSuffix); err != nil || !r.killed {
			return describeJoined(r)
		}
		aside, err := rundir.MoveToBackup(r.path, rundir.StreamName+stream.IndexSuffix)
		if err == nil {
			r.note("there is no %s: its index is %s now", rundir.StreamName, aside)
		}
		return err
	}
	done, err := stream.Repair(path, r.assumed())
	if err != nil {
		return err
	}
	for _, w := range done.What {
		r.note("%s", w)
	}
	r.lost = r.lost || done.Lost
	r.dir.AddSum(rundir.StreamName, done.Stream.Size, done.Stream.SHA256)
	r.dir.AddSum(rundir.StreamName+stream.IndexSuffix, done.Index.Size, done.Index.SHA256)
	s, err := stream.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Verify(nil); err != nil {
		r.lost = true
		r.note("what cannot be read of the stream stays as it is: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	r.describe(s)
	if err := recount(r, s); err != nil {
		return err
	}
	return r.tokens(s, len(done.What) > 0)
}

// table looks at what is there of the table of accesses: parts that are complete are whole by themselves, and what was
// after them is lost. A run that was killed before it recorded what it should hold lacks something in any case.
func (r *repairer) table() error {
	t, err := table.Open(r.path, rundir.TraceName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Join(r.path, rundir.StreamName)); err != nil && r.killed {
			r.lost = true
		}
		return nil
	case err != nil:
		r.lost = true
		r.note("%v", err)
		return nil
	}
	if t.Cut || len(t.Missing) > 0 || t.First > 0 && r.meta.Rotated == nil && r.moved == nil {
		r.lost = true
		r.note("%s was not completed, and holds %d rows: those behind them are lost", rundir.TraceName, t.Rows())
	}
	return t.Close()
}

// lineFiles are files of JSON lines that recorders write, as patterns.
var lineFiles = []string{
	rundir.EventsName, "resource.[0-9]*.jsonl", rundir.ProcessName, rundir.WaitsName, rundir.FaultsName,
	rundir.BlockIOName, rundir.SystemName, rundir.ProfName, rundir.HostSelfName, rundir.MarksName, rundir.ControlName,
	rundir.HostsName, rundir.MovesName,
}

// lines cuts off half a line at the end of each file of lines. Of a process that was killed, lines that waited to
// be written are lost, too, and their number is unknown.
func (r *repairer) lines() error {
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return err
	}
	var files []string
	newest := map[string]int{} // part of each log: it was begun when the one before had ended
	for _, e := range entries {
		if log, number, ok := rundir.PartOf(e.Name()); ok {
			newest[log] = max(newest[log], number)
		}
	}
	for _, e := range entries {
		is := func(pattern string) bool { ok, _ := filepath.Match(pattern, e.Name()); return ok }
		if !e.Type().IsRegular() || !slices.ContainsFunc(lineFiles, is) {
			continue
		}
		cut, err := rundir.EndLines(filepath.Join(r.path, e.Name()))
		if err != nil {
			return err
		}
		if cut > 0 {
			r.lost = true
			r.note("%s: the last %d bytes were half a line, and are cut off", e.Name(), cut)
		}
		if log, number, ok := rundir.PartOf(e.Name()); !ok || number == newest[log] {
			files = append(files, e.Name())
		}
	}
	switch {
	case !r.killed || len(files) == 0:
	case r.sealed:
		r.lost = true
		r.note("%s had said whether lines of %s were lost before the run was sealed", rundir.MetadataName,
			strings.Join(files, ", "))
	default:
		r.lost = true
		r.note("the process was killed before it had ended %s: lines that it had not written yet are lost, and their "+
			"number is unknown",
			strings.Join(files, ", "))
	}
	return nil
}

// assumed is what the metadata say of packets in general.
func (r *repairer) assumed() (a stream.Assumed) {
	for _, s := range r.meta.Streams {
		if id, err := codec.Parse(s.Codec); err == nil {
			a.Codec = id
		}
		if dtype, err := codec.ParseDType(s.DType); err == nil {
			a.DType = dtype
		}
	}
	return a
}

// describe writes into the metadata what the stream holds now.
func (r *repairer) describe(s *stream.Reader) {
	t := s.Info().Totals
	if len(r.meta.Streams) != 1 {
		r.meta.Streams = []rundir.Stream{{Name: rundir.StreamName}}
	}
	m := &r.meta.Streams[0]
	m.Packets, m.BytesSource, m.BytesRaw, m.BytesStored = t.Packets, t.SrcBytes, t.RawBytes, t.Stored
	m.Saturated, m.Underflow = t.Saturated, t.Underflow
	m.MaxAbs, m.NRMSE = errorOf(s)
	if r.meta.Created.IsZero() && s.Info().Header.TimeNS != 0 {
		r.meta.Created = time.Unix(0, s.Info().Header.TimeNS).UTC()
	}
	r.lost = r.lost || len(s.Info().Gaps) > 0
	for _, l := range s.Info().Losses {
		known := false
		for _, k := range r.meta.Losses {
			known = known || k.Cause == l.Cause
		}
		if !known {
			r.meta.Losses = append(r.meta.Losses, rundir.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
		}
	}
}

// errorOf is the largest error that a codec made; nil where it makes none, or a packet's is not known, as its index
// entry was made anew.
func errorOf(s *stream.Reader) (maxAbs, nrmse *float32) {
	var made codec.Achieved
	bounded := false
	for _, p := range s.Packets() {
		if p.Codec.Bounded() && p.Rebuilt {
			return nil, nil
		}
		bounded, made = bounded || p.Codec.Bounded(), made.Or(p.Error)
	}
	if !bounded {
		return nil, nil
	}
	return &made.MaxAbs, &made.NRMSE
}

// seal writes the metadata and a new manifest of everything that is there. What a process that was killed had not
// completed is removed when the metadata report it: tables appear when they are whole.
func (r *repairer) seal() error {
	left, err := rundir.Leftovers(r.path)
	if err != nil {
		return err
	}
	for _, name := range left {
		if table, ok := strings.CutSuffix(strings.TrimPrefix(name, "."), ".parquet.part"); ok {
			r.lost = true
			r.note("%s.parquet was not completed: what it would hold is lost", table)
		}
	}
	r.meta.Lossy = r.meta.Lossy || r.lost || len(r.meta.Losses) > 0
	r.meta.Repaired = append(r.meta.Repaired, r.done)
	if err := r.dir.WriteJSON(rundir.MetadataName, r.meta); err != nil {
		return err
	}
	if err := rundir.RemoveLeftovers(r.path); err != nil {
		return err
	}
	if _, err := rundir.RemoveCheckpoint(r.path); err != nil { // a repair ends a run
		return err
	}
	if err := r.dir.AddFound(); err != nil {
		return err
	}
	return r.dir.Seal()
}
