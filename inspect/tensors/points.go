package tensors

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// PointRow is a point that a run was asked for, with the shape of its tensor.
type PointRow struct {
	ggmlhooks.PointRecord
	Op         string  `json:"op,omitempty"`
	Occurrence int     `json:"occurrence,omitempty"` // of the node among those of its name and op
	Shape      []int64 `json:"shape,omitempty"`      // as ggml counts; 0 runs over tokens
}

// Points are the points that the run was asked for, in forward order by layer.
func (r *Run) Points() ([]PointRow, error) {
	var records []ggmlhooks.PointRecord
	if r.Metadata != nil && r.Metadata.Extra["points"] != nil {
		if err := json.Unmarshal(r.Metadata.Extra["points"], &records); err != nil {
			return nil, fmt.Errorf("%s: points in metadata.json: %w; 'llamatap verify' reports what is damaged", r.Path,
				err)
		}
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s: no points are recorded: record the run with --tap-point, or give the model's "+
			"file to 'llamatap inspect --points'", r.Path)
	}
	shapes := map[string]PointRow{}
	for _, p := range r.Stream.Packets() {
		if _, known := shapes[p.Name]; !known {
			shapes[p.Name] = PointRow{Op: p.Op, Occurrence: p.Occurrence, Shape: tokenShape(p)}
		}
	}
	rows := make([]PointRow, len(records))
	for i, record := range records {
		rows[i] = shapes[record.Tensor]
		rows[i].PointRecord = record
	}
	return rows, r.Stream.Err()
}

// tokenShape is the shape of a packet's tensor, with 0 for the number of tokens.
func tokenShape(p *stream.Packet) []int64 {
	shape, n := slices.Clone(p.NE[:]), 1
	for d, ne := range p.NE {
		if p.Rows != label.RowsNone && d == int(p.RowDim) {
			shape[d] = 0
		}
		if ne != 1 || shape[d] == 0 {
			n = d + 1
		}
	}
	return shape[:n]
}

// SelectPoints narrows a filter to the tensors of points: of those layers of theirs that the filter has.
func (r *Run) SelectPoints(f *Filter, refs []ggmlhooks.PointRef) (notes []string, err error) {
	f.globs, notes, err = r.PointGlobs(refs, func(layer int) bool { return f.Layer == nil || *f.Layer == layer })
	f.Layer = nil
	return notes, err
}

// PointGlobs are globs of the tensors of points, in those of their layers that are chosen. A point of the whole model
// is in no layer. The notes say which tensor is not the point itself, and how that follows from it.
func (r *Run) PointGlobs(refs []ggmlhooks.PointRef, layer func(int) bool) (globs, notes []string, err error) {
	rows, err := r.Points()
	if err != nil {
		return nil, nil, err
	}
	var there []string
	lacks := map[string]string{}
	for _, row := range rows {
		if name := row.Point.String(); row.Tensor != "" && !slices.Contains(there, name) {
			there = append(there, name)
		}
		means := func(ref ggmlhooks.PointRef) bool { return ref.Means(row.Point, row.LayerNumber()) }
		if !slices.ContainsFunc(refs, means) {
			continue
		}
		if row.Tensor == "" {
			lacks[row.Point.String()] = row.Why
		} else if layer(row.LayerNumber()) {
			glob := row.Tensor
			if !strings.Contains(glob, "#") {
				glob += "#1"
			}
			globs = append(globs, glob)
			note := fmt.Sprintf("%s is %s: %s", row.Point, ggmlhooks.WithoutLayer(row.Tensor), row.Why)
			if row.How == ggmlhooks.PointRecomputed && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	for _, ref := range refs {
		name := ref.Point.String()
		if why := lacks[name]; why != "" && !slices.Contains(there, name) {
			return nil, nil, fmt.Errorf("%s: the model has no %s: %s", r.Path, name, why)
		}
		if !slices.Contains(there, name) {
			return nil, nil, fmt.Errorf("%s: %s is not recorded: there are %s; record it with --tap-point %s", r.Path,
				name, strings.Join(there, ", "), name)
		}
	}
	if len(globs) == 0 {
		return nil, nil, fmt.Errorf("%s: these points are recorded in other layers: 'llamatap inspect %s --points' "+
			"lists them", r.Path, r.Path)
	}
	return globs, notes, nil
}

// WritePoints writes a table of the points that there are, and why there are no others. Layers in which one is had in
// the same way share a line.
func WritePoints(w io.Writer, rows []PointRow) error {
	type line struct {
		point                  ggmlhooks.Point
		how                    ggmlhooks.PointHow
		tensor, op, shape, why string
	}
	var lines []line
	layers := map[line]*ggmlhooks.LayerSet{}
	for _, row := range rows {
		l := line{row.Point, row.How, ggmlhooks.WithoutLayer(row.Tensor), row.Op, shapeText(row.Shape), row.Why}
		if strings.HasPrefix(l.tensor, "node_") {
			l.tensor = "node_*" // numbered through the graph
		}
		if layers[l] == nil {
			lines, layers[l] = append(lines, l), &ggmlhooks.LayerSet{}
		}
		if row.Layer != nil {
			layers[l].Add(*row.Layer)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.point) - int(b.point) })
	table := [][]string{{"point", "layers", "is", "tensor", "op", "shape"}}
	var remarks []string
	for _, l := range lines {
		in := layers[l].String()
		if l.tensor != "" {
			table = append(table, []string{l.point.String(), in, l.how.String(), l.tensor, l.op, l.shape})
		}
		if l.why == "" {
			continue
		}
		if in != "" {
			in = " (layers " + in + ")"
		}
		remarks = append(remarks, fmt.Sprintf("%s%s, %s: %s", l.point, in, l.how, l.why))
	}
	if err := present.Fit(w, table, Width); err != nil || len(remarks) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(remarks, "\n"))
	return err
}
