package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
)

// activationsSection is what was captured of tensors.
func activationsSection(ctx context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "activations", Title: "Activations"}
	run, err := tensors.Open(r.Path)
	switch {
	case errors.Is(err, tensors.ErrNotARun) && !r.recorded("tensors"):
		s.Missing = "Not recorded: --tap-tensors 'l_out*'"
		return s, nil
	case err != nil:
		r.note("the captured tensors cannot be read: %v", err)
		return s, nil
	}
	defer run.Close()
	sum, err := tensors.Summarize(run, tensors.Filter{})
	if err != nil {
		s.Missing = err.Error()
		return s, nil
	}
	if sum.Packets == 0 {
		s.Missing = "No tensor is in the capture: --tap-tensors 'l_out*'"
		return s, nil
	}
	s.Text = append(s.Text, fmt.Sprintf("%s of %s, %s as the model computed them, %s on disk.",
		plural(sum.Packets, "captured tensor"), plural(sum.Tokens, "token"), present.Bytes(sum.BytesRaw),
		present.Bytes(sum.BytesStored)))
	if sum.BytesRaw > maxTensorBytes {
		s.Text = append(s.Text,
			fmt.Sprintf("They are more than the %s that a report reads: llamatap inspect %s --stats.",
				present.Bytes(maxTensorBytes), r.Path))
		return s, nil
	}
	if err := tensors.MeasureTensors(ctx, run, tensors.Filter{}, sum, nil); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.note("statistics of tensors: %v", err)
	} else {
		s.addStatistics(sum)
	}
	if c, err := attentionMap(run); err != nil {
		s.Text = append(s.Text, "Attention: "+err.Error()+".")
	} else if c != nil {
		s.Charts = append(s.Charts, c)
	} else {
		s.Text = append(s.Text, "Attention maps are not recorded: --tap-attention.")
	}
	return s, nil
}

// opNone is the op of a graph's inputs, such as masks and indices, which are no activations.
const opNone = "NONE"

// layerNumber is a layer in a tensor's name.
var layerNumber = regexp.MustCompile(`(-|_l|\.)\d+`)

// addStatistics adds the root mean square of each tensor, and those with the largest values.
func (s *section) addStatistics(sum *tensors.Summary) {
	heat := &figure{Kind: drawnMatrix, Title: "Root mean square of the captured values, by layer and tensor",
		Y: axis{Name: "root mean square"}}
	columns := map[string]int{}
	column := func(t *tensors.Tensor) string { return layerNumber.ReplaceAllString(t.Name, "") }
	type largest struct {
		name string
		most float64
		of   *tensors.Tensor
	}
	var outliers []largest
	var bad, worst uint64
	worstName := ""
	for i := range sum.Layers {
		for k := range sum.Layers[i].Tensors {
			t := &sum.Layers[i].Tensors[k]
			if t.Op == opNone {
				continue
			}
			if _, ok := columns[column(t)]; !ok && len(columns) < maxColumns {
				columns[column(t)] = len(columns)
				heat.Columns = append(heat.Columns, column(t))
			}
			if t.Stats == nil || t.Stats.Moments == nil {
				continue
			}
			bad += t.Stats.NaN + t.Stats.Inf
			if n := t.Stats.NaN + t.Stats.Inf; n > worst {
				worst, worstName = n, t.Name
			}
			outliers = append(outliers, largest{t.Name, max(math.Abs(t.Stats.Min), math.Abs(t.Stats.Max)), t})
		}
	}
	shades := &curve{Name: "root mean square"}
	for i := range sum.Layers {
		row := make(values, len(heat.Columns))
		for k := range row {
			row[k] = math.NaN()
		}
		for k := range sum.Layers[i].Tensors {
			t := &sum.Layers[i].Tensors[k]
			if at, ok := columns[column(t)]; ok && t.Stats != nil && t.Stats.Moments != nil {
				if n := float64(t.Stats.Elements - t.Stats.NaN - t.Stats.Inf); n > 0 {
					row[at] = t.Stats.L2 / math.Sqrt(n)
				}
			}
		}
		heat.Rows = append(heat.Rows, layerName(sum.Layers[i].Layer))
		shades.Y = append(shades.Y, row...)
	}
	if len(outliers) == 0 {
		return
	}
	heat.Series = []*curve{shades}
	s.Charts = append(s.Charts, heat)
	if bad > 0 {
		s.Text = append(s.Text, fmt.Sprintf("%d values are not finite, most of them (%d) in %s.", bad, worst,
			worstName))
	}
	slices.SortStableFunc(outliers, func(a, b largest) int { return cmp.Compare(b.most, a.most) })
	rows := [][]string{{"tensor", "largest magnitude", "mean", "standard deviation", "largest ÷ deviation"}}
	for _, o := range outliers[:min(len(outliers), 12)] {
		ratio := "-"
		if o.of.Stats.Std > 0 {
			ratio = present.Digits(o.most / o.of.Stats.Std)
		}
		rows = append(rows, []string{o.name, present.Digits(o.most), present.Digits(o.of.Stats.Mean),
			present.Digits(o.of.Stats.Std), ratio})
	}
	s.Tables = append(s.Tables, &titled{"Tensors with the largest values", rows})
}

// maxColumns bounds the columns of a matrix, maxAttention the tokens of an attention map.
const (
	maxColumns   = 48
	maxAttention = 96
)

// attentionMap is the first captured layer's, of its first head; nil where there is none.
func attentionMap(run *tensors.Run) (*figure, error) {
	layers, err := run.AttentionLayers(0)
	if errors.Is(err, tensors.ErrNoAttention) || err == nil && len(layers) == 0 {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	m, err := tensors.NewMap(run, tensors.MapOptions{Layer: layers[0], End: maxAttention})
	if err != nil {
		return nil, err
	}
	c := &figure{Kind: drawnMatrix, Y: axis{Name: "weight"},
		Title: fmt.Sprintf("Attention of layer %d, head 0: the first tokens and the cells that they look at",
			layers[0])}
	var all [][]float32
	err = m.EachRow(func(row *tensors.MapRow) error {
		all = append(all, slices.Clone(row.Weights[:min(len(row.Weights), maxAttention)]))
		c.Rows = append(c.Rows, "token "+strconv.FormatInt(row.Token, 10))
		return nil
	})
	if err != nil {
		return nil, err
	}
	wide := 0
	for _, row := range all {
		for i, w := range row {
			if w > 0 {
				wide = max(wide, i+1)
			}
		}
	}
	for i := range wide {
		c.Columns = append(c.Columns, "cell "+strconv.Itoa(i))
	}
	shades := &curve{Name: "weight"}
	for _, row := range all {
		for i := range wide {
			v := 0.0
			if i < len(row) {
				v = float64(row[i])
			}
			shades.Y = append(shades.Y, v)
		}
	}
	c.Series = []*curve{shades}
	return c, nil
}
