package tensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// ErrNotARun is wrapped by Open's error for a path that holds no captured tensors.
var ErrNotARun = errors.New("no captured tensors")

// Run is an opened run directory or stream. Its methods may be called from several goroutines, except Close.
type Run struct {
	Path     string // as given to Open
	Kind     Kind
	Sealed   bool             // a run directory with a manifest that is what was sealed
	Metadata *rundir.Metadata // nil where there is none
	Stream   *stream.Reader

	running     bool     // a process was writing it when it was opened
	manifest    error    // what is wrong with its manifest
	tokensPaths []string // of the tokens files, which may not be there; one, or one per segment
}

// Open opens a run directory, a stream with its index, or a stream alone as STRAP-LLM writes it. The caller closes it.
func Open(path string) (*Run, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such file or folder: give a run directory or a .stream file", path)
	case err != nil:
		return nil, err
	case info.IsDir():
		// before the files are read: a run that ends meanwhile is not yet whole in them
		running, _ := rundir.InUse(path)
		r, err := openDir(path)
		if err == nil {
			r.running = running && !r.Sealed
		}
		return r, err
	}
	return openStream(path)
}

func openDir(path string) (*Run, error) {
	name := filepath.Join(path, rundir.StreamName)
	if !exists(name) {
		return openSegments(path)
	}
	r := &Run{Path: path, Kind: KindRun, tokensPaths: []string{filepath.Join(path, rundir.TokensName)}}
	r.Sealed, r.manifest = rundir.Sealed(path)
	var err error
	if r.Metadata, err = rundir.FindMetadata(path); err != nil {
		return nil, err
	}
	if !r.Sealed && !begun(path) {
		return nil,
			fmt.Errorf("%s: %w: nothing was recorded before its process was killed, or the run is only starting: "+
				"if no llamatap writes it any more, seal it with 'llamatap verify --repair %s'", path, ErrNotARun, path)
	}
	if r.Stream, err = stream.Open(name); errors.Is(err, stream.ErrNoIndex) {
		r.Stream, err = openForeign(name)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// openForeign opens a stream without an index. A file that does not even begin as one is none.
func openForeign(path string) (*stream.Reader, error) {
	s, err := stream.OpenForeign(path)
	if err != nil || s.Len() > 0 {
		return s, err
	}
	what := "it has no index and does not begin with a whole packet, so it is not a stream"
	if len(s.Info().Damage) == 0 {
		what = "the file is empty"
	}
	return nil, errors.Join(fmt.Errorf("%s: %w: %s: give a run directory or a .stream file", path, ErrNotARun, what),
		s.Close())
}

// openSegments opens the segments of a run as if they were one.
func openSegments(path string) (*Run, error) {
	names, err := rundir.Segments(path)
	if err != nil {
		return nil, err
	}
	r := &Run{Path: path, Kind: KindRun}
	r.Sealed, r.manifest = rundir.Sealed(path)
	var parts []*stream.Reader
	for _, name := range names {
		folder := filepath.Join(path, name)
		if !begun(folder) {
			continue // is being made or removed
		}
		part, err := openDir(folder)
		if err != nil {
			return nil, errors.Join(err, stream.Join(parts...).Close())
		}
		parts = append(parts, part.Stream)
		r.tokensPaths = append(r.tokensPaths, part.tokensPaths...)
		if part.Metadata != nil { // of a live run, as far as it holds for all segments
			r.Metadata = &rundir.Metadata{Model: part.Metadata.Model, Contexts: part.Metadata.Contexts,
				Extra: part.Metadata.Extra}
		}
	}
	if len(parts) == 0 {
		return nil, notARun(path)
	}
	r.Stream = stream.Join(parts...)
	if own, err := rundir.FindMetadata(path); err != nil {
		return nil, errors.Join(err, r.Close())
	} else if own != nil {
		r.Metadata = own
	}
	return r, nil
}

// begun reports whether there is anything to read in a run directory or a segment. Its stream is created before its
// index, and the index before its header is written: a kill between leaves files that hold nothing.
func begun(folder string) bool {
	name := filepath.Join(folder, rundir.StreamName)
	data, err := os.Stat(name)
	if err != nil {
		return false
	}
	index, err := os.Stat(name + stream.IndexSuffix)
	if err != nil { // a stream with data can be read without its index
		return data.Size() > 0
	}
	return index.Size() > 0
}

// notARun says what to give instead; for a folder of runs, which of them is the newest.
func notARun(path string) error {
	runs := slices.DeleteFunc(rundir.Find(path), func(run string) bool {
		return !exists(filepath.Join(run, rundir.StreamName)) &&
			!exists(filepath.Join(run, rundir.SegmentName(1), rundir.StreamName))
	})
	if len(runs) > 0 {
		return fmt.Errorf("%s: %w here, but in %s below it: give one of them, such as the newest, %s", path,
			ErrNotARun, present.Plural(len(runs), "run"), runs[0])
	}
	var dataset struct{ Path string }
	if m, err := rundir.ReadMetadata(path); err == nil && json.Unmarshal(m.Extra["dataset"], &dataset) == nil &&
		dataset.Path != "" {
		return fmt.Errorf("%s: %w: its tensors are in the dataset %s, which datasets.load_dataset and "+
			"'llamatap sae' read", path, ErrNotARun, dataset.Path)
	}
	return fmt.Errorf("%s: %w: %s is not in it; give the run directory of a run that recorded activations", path,
		ErrNotARun, rundir.StreamName)
}

func openStream(path string) (*Run, error) {
	path = strings.TrimSuffix(path, stream.IndexSuffix)
	// a link that the user names; those in a run directory are not followed
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	r := &Run{Path: path, Kind: KindStream, tokensPaths: []string{strings.TrimSuffix(path, ".stream") + "_tokens.json"}}
	var err error
	if r.Stream, err = stream.Open(path); errors.Is(err, stream.ErrNoIndex) {
		r.Kind = KindForeign
		r.Stream, err = openForeign(path)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the files.
func (r *Run) Close() error { return r.Stream.Close() }

// Losses returns what was not recorded, by cause; never nil.
func (r *Run) Losses() []rundir.Loss {
	losses := []rundir.Loss{}
	if r.Metadata != nil {
		losses = append(losses, r.Metadata.Losses...)
	}
	// A stream whose writing failed names the cause without a number, before it is known whether something is missing.
	whole := r.Metadata != nil && r.Metadata.Stopped != nil && r.Metadata.Stopped.Whole
	for _, l := range r.Stream.Info().Losses {
		if whole && l.Packets == 0 && l.Bytes == 0 {
			continue
		}
		if !slices.ContainsFunc(losses, func(known rundir.Loss) bool { return known.Cause == l.Cause }) {
			losses = append(losses, rundir.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
		}
	}
	return losses
}
