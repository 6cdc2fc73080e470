package tensors

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// Summarize reads the index, once, and returns what the selected packets are. Memory grows with the number of
// different tensors.
func Summarize(r *Run, f Filter) (*Summary, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	s := &Summary{Path: r.Path, Kind: r.Kind, Sealed: r.Sealed, Running: r.running, Assumed: r.Stream.Info().Assumed,
		Losses: r.Losses()}
	if r.Metadata != nil {
		s.Model, s.Arch, s.Lost = r.Metadata.Model.Name, r.Metadata.Model.Arch, r.Metadata.Lossy
		s.Account, s.Steering, s.Rotated = r.Metadata.Account, r.Metadata.Steering, r.Metadata.Rotated
		s.Moved = r.Metadata.Moved.Absent(r.Path)
		if t := r.Metadata.Tokens; t != nil {
			s.computed = t.Prompt + t.Generated
		}
	}
	s.Lost = s.Lost || len(s.Losses) > 0
	if r.manifest != nil {
		s.Damage, s.broken = append(s.Damage, r.manifest.Error()), true
	}
	for _, err := range r.Stream.Info().Damage {
		if r.running && errors.Is(err, stream.ErrTruncated) {
			continue // its end is still to be written
		}
		s.Damage = append(s.Damage, err.Error())
	}
	g := gatherer{byKey: make(map[tensorKey]*Tensor), order: make(map[tensorKey]int)}
	for i, p := range r.Stream.Packets() {
		if p.Phase != label.PhaseSetup && f.Match(p) { // set-up that is in the stream is not the run's
			g.add(i, p)
			s.noteAltering(p)
			s.Saturated += p.Saturated
			s.Underflown += p.Underflow
		}
	}
	if s.Assumed != "" {
		for _, t := range g.byKey {
			t.BytesSource = 0 // only an index holds what the elements were before conversion
		}
	}
	s.Layers = g.layers()
	for i := range s.Layers {
		s.Totals.add(s.Layers[i].Totals)
	}
	if s.Assumed != "" {
		s.Altered = nil // the types of the tensors are not known
	}
	s.Lossy = s.Lost || len(s.Altered) > 0
	if r.Metadata != nil {
		addBounds(s.Altered, r.Metadata)
	}
	return s, s.countTokens(r)
}

// noteAltering notes what makes a packet's values differ from the tensor's.
func (s *Summary) noteAltering(p *stream.Packet) {
	by := ""
	switch {
	case p.Codec.Bounded() && p.DType == codec.F32: // other types it packs as they are
		by = "codec " + p.Codec.String()
	case p.DType != codec.Raw && p.RawBytes < p.SrcBytes:
		by = "dtype " + p.DType.String()
	}
	if by != "" && !slices.ContainsFunc(s.Altered, func(a Altering) bool { return a.By == by }) {
		s.Altered = append(s.Altered, Altering{By: by})
	}
}

// addBounds adds the bound that the run's settings name to the codecs that keep it.
func addBounds(altered []Altering, m *rundir.Metadata) {
	settings := m.Settings()
	bound, _ := settings["error"].Value.(float64)
	metric, _ := settings["error_metric"].Value.(string)
	for i := range altered {
		if strings.HasPrefix(altered[i].By, "codec ") {
			altered[i].Bound, altered[i].Metric = bound, metric
		}
	}
}

// countTokens counts the run's token rows: the index states them; beside a foreign stream a tokens file may.
func (s *Summary) countTokens(r *Run) error {
	type request struct {
		ctx         uint32
		seq, number int32
	}
	s.TokensByPhase = make(map[string]int64)
	requests := make(map[request]bool)
	for e := range r.Stream.Executions() {
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Phase == label.PhaseSetup {
				continue
			}
			s.Tokens++
			s.TokensByPhase[row.Phase.String()]++
			if row.Request != label.RequestUnknown {
				requests[request{e.Ctx, row.Seqs[0], row.Request}] = true
			}
		}
	}
	if err := r.Stream.Err(); err != nil {
		return err
	}
	s.Requests = int64(len(requests))
	if s.Tokens == 0 && r.Kind == KindForeign {
		total, err := r.EachToken(nil)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.Tokens = total
	}
	if s.Tokens > 0 {
		s.PacketsPerToken = float64(s.Packets) / float64(s.Tokens)
		s.BytesPerToken = float64(s.BytesStored) / float64(s.Tokens)
	}
	return nil
}

// gatherer sums packets up by tensor.
type gatherer struct {
	byKey map[tensorKey]*Tensor
	order map[tensorKey]int
}

func (g *gatherer) add(i int, p *stream.Packet) {
	key := tensorKey{p.Ctx, p.Name}
	t := g.byKey[key]
	shape := trimShape(p.NE)
	if t == nil {
		t = &Tensor{Name: p.Name, Ctx: p.Ctx, Op: p.Op, Layer: int(p.Layer), Component: p.Component,
			DType: p.DType.String(),
			Codec: p.Codec.String(), Shape: shape, Rows: p.Rows, RowDim: int(p.RowDim)}
		g.byKey[key] = t
		g.order[key] = i
	}
	t.Shape = commonShape(t.Shape, shape)
	if p.Rows != label.RowsNone && p.Block == 0 {
		t.Tokens += int64(p.TokenCount)
	}
	t.Totals.add(Totals{Packets: 1, BytesSource: p.SrcBytes, BytesRaw: p.RawBytes, BytesStored: p.Stored,
		Error: p.Error})
}

// trimShape drops trailing dimensions of one.
func trimShape(ne [4]int64) []int64 {
	n := len(ne)
	for n > 1 && ne[n-1] == 1 {
		n--
	}
	return append([]int64(nil), ne[:n]...)
}

// commonShape joins the shapes of two executions; 0 where they differ.
func commonShape(a, b []int64) []int64 {
	for len(a) < len(b) {
		a = append(a, 1)
	}
	for i := range a {
		other := int64(1)
		if i < len(b) {
			other = b[i]
		}
		if a[i] != other {
			a[i] = 0
		}
	}
	return a
}

// layers sorts tensors by the layer and, in it, by first packet, which is graph order.
func (g *gatherer) layers() []Layer {
	tensors := make([]*Tensor, 0, len(g.byKey))
	for _, t := range g.byKey {
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(g.order[a.key()], g.order[b.key()]))
	})
	layers := []Layer{}
	for _, t := range tensors {
		if len(layers) == 0 || layers[len(layers)-1].Layer != t.Layer {
			layers = append(layers, Layer{Layer: t.Layer})
		}
		layers[len(layers)-1].add(t)
	}
	return layers
}

func (l *Layer) add(t *Tensor) {
	l.Tensors = append(l.Tensors, *t)
	l.Totals.add(t.Totals)
	for i := range l.Components {
		if c := &l.Components[i]; c.Component == t.Component {
			c.Tensors++
			c.Totals.add(t.Totals)
			return
		}
	}
	l.Components = append(l.Components, Component{Component: t.Component, Tensors: 1, Totals: t.Totals})
}
