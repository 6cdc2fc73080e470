package autoencoder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// Selection names one tensor of recordings.
type Selection struct {
	Point  *ggmlhooks.PointRef // a named point, of runs that were recorded with --tap-point
	Layer  *int
	Tensor string // a glob on names, where Point is nil
	Model  string // that the recordings are of; "": any
}

// Recordings are the rows of one tensor of several runs or datasets of them, which are of one model.
type Recordings struct {
	sources []source
	// About says what the rows are.
	About About
	// Notes say which rows are missing.
	Notes []string
}

// source is a run or a dataset.
type source interface {
	// open opens the path and returns the model, and which tensor is selected.
	open(path string, what Selection) (About, error)
	each(ctx context.Context, fn func(values []float32, token int64) error) error
	// missing are the segments that were recorded and are neither there nor removed to make room.
	missing() []string
	// eachToken calls fn with the tokens in their order, at least with those near an index that is wanted, where there
	// are texts of them.
	eachToken(near func(index int64) bool, fn func(*tensors.Token) error) error
	close()
}

// OpenRecordings opens runs and datasets. The caller closes them.
func OpenRecordings(paths []string, what Selection) (*Recordings, error) {
	r := &Recordings{}
	for i, path := range paths {
		var s source = &runSource{}
		if isDataset(path) {
			s = &dataset{}
		}
		about, err := s.open(path, what)
		if _, noData := os.Stat(filepath.Join(path, "data")); errors.Is(err, tensors.ErrNotARun) && noData == nil {
			err = fmt.Errorf("%s is a dataset without shards, whose writing was cut off: export or record it again",
				path)
		}
		r.sources = append(r.sources, s)
		if first := &r.About; err == nil && i > 0 && (about.Model != first.Model || about.Tensor != first.Tensor) {
			err = fmt.Errorf("%s is of %q, %s, and %s of %q, %s: record all with one model and choose one tensor", path,
				about.Model, about.Tensor, paths[0], first.Model, first.Tensor)
		}
		if err == nil && what.Model != "" && about.Model != what.Model {
			err = fmt.Errorf("%s is of the model %q, and the autoencoder of %q: give recordings of that one", path,
				about.Model, what.Model)
		}
		if err != nil {
			r.Close()
			return nil, err
		}
		r.About = about
		if missing := s.missing(); len(missing) > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s is missing, and so are its rows: copy the run again", path,
				strings.Join(missing, ", ")))
		}
	}
	r.About.Sources = paths
	return r, nil
}

// Each calls fn with each row, source by source.
func (r *Recordings) Each(ctx context.Context, fn func(Row) error) error {
	for i, s := range r.sources {
		err := s.each(ctx, func(values []float32, token int64) error {
			return fn(Row{Values: values, Source: i, Token: token})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes all.
func (r *Recordings) Close() {
	for _, s := range r.sources {
		s.close()
	}
}

// runSource is a run.
type runSource struct {
	run    *tensors.Run
	filter tensors.Filter
}

func (s *runSource) open(path string, what Selection) (about About, err error) {
	if s.run, err = tensors.Open(path); err != nil {
		return about, err
	}
	s.filter = tensors.Filter{Tensor: what.Tensor, Layer: what.Layer}
	about.Layer = what.Layer
	if what.Point != nil {
		about.Point = what.Point.Point.String()
		if what.Point.Layer != ggmlhooks.NoLayer {
			about.Layer = &what.Point.Layer
		}
		notes, err := s.run.SelectPoints(&s.filter, []ggmlhooks.PointRef{*what.Point})
		if err == nil && len(notes) > 0 {
			err = fmt.Errorf("%s: %s, so its rows are not captured as they are: train on another point", path, notes[0])
		}
		if err != nil {
			return about, err
		}
	}
	var names []string
	for _, p := range s.run.Stream.Packets() {
		if s.filter.Match(p) && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	switch {
	case len(names) == 0:
		return about, s.run.Unknown(s.filter)
	case len(names) > 1:
		return about, fmt.Errorf("%s: %d tensors are selected (%s): give the --layer of one, or name it with --tensor",
			path, len(names), strings.Join(names[:min(len(names), 4)], ", "))
	}
	summary, err := tensors.Summarize(s.run, s.filter)
	if err != nil {
		return about, err
	}
	about.Model, about.ModelArch, about.Tensor = summary.Model, summary.Arch, names[0]
	return about, nil
}

func (s *runSource) each(ctx context.Context, fn func([]float32, int64) error) error {
	return tensors.EachTokenRow(ctx, s.run, s.filter, func(row *tensors.TokenRow) error {
		return fn(row.Values, row.Token)
	})
}

func (s *runSource) missing() (names []string) {
	if s.run.Metadata == nil {
		return nil
	}
	for _, segment := range s.run.Metadata.Segments {
		_, err := os.Stat(filepath.Join(s.run.Path, segment.Name))
		if segment.Removed.IsZero() && errors.Is(err, fs.ErrNotExist) {
			names = append(names, segment.Name)
		}
	}
	return names
}

func (s *runSource) eachToken(_ func(int64) bool, fn func(*tensors.Token) error) error {
	_, err := s.run.EachToken(fn)
	return err
}

func (s *runSource) close() {
	if s.run != nil {
		s.run.Close()
	}
}
