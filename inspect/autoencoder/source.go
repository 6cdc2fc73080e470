package autoencoder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// Selection names one tensor of recordings.
type Selection struct {
	Point  *ggmlhooks.PointRef // a named point, of runs that were recorded with --tap-points
	Layer  *int
	Tensor string // a glob on names, where Point is nil
}

// Recordings are the rows of one tensor of several runs, which are of one model.
type Recordings struct {
	runs    []*tensors.Run
	filters []tensors.Filter
	// About says what the rows are.
	About About
}

// OpenRecordings opens runs. The caller closes them.
func OpenRecordings(paths []string, what Selection) (*Recordings, error) {
	r := &Recordings{About: About{Layer: what.Layer, Tensor: what.Tensor, Sources: paths}}
	if what.Point != nil {
		r.About.Point = what.Point.Point.String()
		if what.Point.Layer != ggmlhooks.NoLayer {
			r.About.Layer = &what.Point.Layer
		}
	}
	for _, path := range paths {
		if err := r.open(path, what); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (r *Recordings) open(path string, what Selection) error {
	run, err := tensors.Open(path)
	if err != nil {
		return err
	}
	r.runs = append(r.runs, run)
	filter := tensors.Filter{Tensor: what.Tensor, Layer: what.Layer}
	if what.Point != nil {
		notes, err := run.SelectPoints(&filter, []ggmlhooks.PointRef{*what.Point})
		if err == nil && len(notes) > 0 {
			err = fmt.Errorf("%s: %s, so its rows are not captured as they are: train on another point", path, notes[0])
		}
		if err != nil {
			return err
		}
	}
	var names []string
	for _, p := range run.Stream.Packets() {
		if filter.Match(p) && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	switch {
	case len(names) == 0:
		return run.Unknown(filter)
	case len(names) > 1:
		return fmt.Errorf("%s: %d tensors are selected (%s): give the --layer of one, or name it with --tensor", path,
			len(names), strings.Join(names[:min(len(names), 4)], ", "))
	}
	summary, err := tensors.Summarize(run, filter)
	if err != nil {
		return err
	}
	switch first := r.About.Model; {
	case len(r.runs) == 1:
		r.About.Model, r.About.ModelArch, r.About.Tensor = summary.Model, summary.Arch, names[0]
	case first != summary.Model:
		return fmt.Errorf("%s is of the model %q and %s of %q: record all with one model", path, summary.Model,
			r.runs[0].Path, first)
	}
	r.filters = append(r.filters, filter)
	return nil
}

// Each calls fn with each row, run by run.
func (r *Recordings) Each(ctx context.Context, fn func(Row) error) error {
	for i, run := range r.runs {
		err := tensors.EachTokenRow(ctx, run, r.filters[i], func(row *tensors.TokenRow) error {
			return fn(Row{Values: row.Values, Source: i, Token: row.Token})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the runs.
func (r *Recordings) Close() {
	for _, run := range r.runs {
		run.Close()
	}
}
