package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

// Repair repairs a run directory, with its segments, or a stream and its index, and returns a sentence for everything that it found or
// did; none where nothing had to be done. version is the program's. A run that is still going on is refused.
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
	v, err := tensors.Verify(path)
	if err != nil {
		return nil, err
	}
	if !needed(v) {
		return nil, nil
	}
	if c, err := net.Dial("unix", filepath.Join(path, "control.sock")); err == nil {
		return nil, errors.Join(fmt.Errorf("repair %s: the run is still going on: wait for its end, or end it with 'llamatap ctl %s stop'", path, path), c.Close())
	}
	return repairDir(path, version)
}

// needed tells whether there is something to repair: a loss that was recorded is none.
func needed(v *tensors.Verification) bool {
	for _, f := range v.Findings {
		if f.Kind == tensors.Damage || f.Kind == tensors.Unsealed {
			return true
		}
	}
	return false
}

// run is one directory that is being repaired.
type run struct {
	dir     *rundir.Dir
	path    string
	changed map[string]bool // files that are not what the old manifest says
	meta    rundir.Metadata
	done    rundir.Repair
	lost    bool
}

func (r *run) say(format string, args ...any) {
	r.done.What = append(r.done.What, fmt.Sprintf(format, args...))
}

func repairDir(path, version string) ([]string, error) {
	report, err := rundir.Verify(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		report = rundir.Report{}
	}
	r := &run{path: path, changed: map[string]bool{}, done: rundir.Repair{At: time.Now().UTC(), Llamatap: version}}
	if !report.Sealed {
		r.say("there was no %s that can be read", rundir.ManifestName)
	}
	for _, name := range report.Missing {
		r.say("%s is gone", name)
		r.lost = true
	}
	for _, name := range report.Changed {
		r.changed[name] = true
		r.lost = r.lost || strings.HasSuffix(name, ".parquet") // nothing brings it back
		r.say("%s was not what the manifest had recorded", name)
	}
	if r.dir, err = rundir.Mend(path); err != nil {
		return nil, err
	}
	for _, step := range []func() error{r.segments, r.metadata, r.stream, r.table, r.seal} {
		if err := step(); err != nil {
			return r.done.What, fmt.Errorf("%w; %s is unsealed", err, path)
		}
	}
	return r.done.What, nil
}

// segments repairs every segment for itself.
func (r *run) segments() error {
	names, err := rundir.Segments(r.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		what, err := Repair(filepath.Join(r.path, name), r.done.Llamatap)
		if errors.Is(err, tensors.ErrNotARun) {
			r.say("%s: there is nothing in it that can be read; it is left alone", name)
			continue
		}
		if err != nil {
			return err
		}
		for _, w := range what {
			r.say("%s: %s", name, w)
		}
		r.lost = r.lost || len(what) > 0
		if err := r.dir.AddFoundSegment(name); err != nil {
			return err
		}
	}
	return nil
}

// metadata reads what the run said of itself. What cannot be read, or was changed later, is put aside, and begins anew with what is
// certain.
func (r *run) metadata() error {
	m, err := rundir.ReadMetadata(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.say("there was no %s: what ran, where and how is unknown", rundir.MetadataName)
	case err == nil && !r.changed[rundir.MetadataName]:
		r.meta = m
	default:
		if err != nil {
			r.say("%v", err)
		}
		aside, err := r.dir.PutAside(rundir.MetadataName)
		if err != nil {
			return err
		}
		r.say("%s is %s now, and is made anew with what is certain", rundir.MetadataName, aside)
	}
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

// stream repairs the stream, and the tokens with it.
func (r *run) stream() error {
	path := filepath.Join(r.path, tensors.StreamName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	done, err := stream.Repair(path, r.assumed())
	if err != nil {
		return err
	}
	for _, w := range done.What {
		r.say("%s", w)
	}
	r.lost = r.lost || done.Lost
	r.dir.AddSum(tensors.StreamName, done.Stream.Size, done.Stream.SHA256)
	r.dir.AddSum(tensors.StreamName+stream.IndexSuffix, done.Index.Size, done.Index.SHA256)
	s, err := stream.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Verify(); err != nil {
		r.lost = true
		r.say("what cannot be read of the stream stays as it is: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	r.describe(s)
	return r.tokens(s, len(done.What) > 0)
}

// table looks at what is there of the table of accesses: parts that are complete are whole by themselves, and what was behind them is lost. A run of which
// nobody knows what it should hold, for it was ended before it could tell, lacks something in any case.
func (r *run) table() error {
	t, err := table.Open(r.path, memtrace.TraceName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Join(r.path, tensors.StreamName)); err != nil && r.meta.Created.IsZero() {
			r.lost = true
		}
		return nil
	case err != nil:
		r.lost = true
		r.say("%v", err)
		return nil
	}
	if t.Cut || len(t.Missing) > 0 {
		r.lost = true
		r.say("%s was not completed, and holds %d rows: those behind them are lost", memtrace.TraceName, t.Rows())
	}
	return t.Close()
}

// assumed is what the metadata say of packets in general.
func (r *run) assumed() (a stream.Assumed) {
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
func (r *run) describe(s *stream.Reader) {
	t := s.Totals()
	if len(r.meta.Streams) != 1 {
		r.meta.Streams = []rundir.Stream{{Name: tensors.StreamName}}
	}
	m := &r.meta.Streams[0]
	m.Packets, m.BytesSource, m.BytesRaw, m.BytesStored = t.Packets, t.SrcBytes, t.RawBytes, t.Stored
	m.Saturated, m.Underflow = t.Saturated, t.Underflow
	if r.meta.Created.IsZero() && s.Header().TimeNS != 0 {
		r.meta.Created = time.Unix(0, s.Header().TimeNS).UTC()
	}
	for _, l := range s.Losses() {
		known := false
		for _, k := range r.meta.Losses {
			known = known || k.Cause == l.Cause
		}
		if !known {
			r.meta.Losses = append(r.meta.Losses, rundir.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
		}
	}
}

// seal writes the metadata and a new manifest of everything that is there.
func (r *run) seal() error {
	r.meta.Lossy = r.meta.Lossy || r.lost || len(r.meta.Losses) > 0
	r.meta.Repaired = append(r.meta.Repaired, r.done)
	if err := r.dir.WriteJSON(rundir.MetadataName, r.meta); err != nil {
		return err
	}
	if err := r.dir.AddFound(); err != nil {
		return err
	}
	return r.dir.Seal()
}
