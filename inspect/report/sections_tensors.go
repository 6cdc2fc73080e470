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

	"github.com/llamatap/llamatap/inspect/activations"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
)

// activationsSection is what was captured of tensors.
func activationsSection(ctx context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "activations", Title: "Activations"}
	run, err := tensors.Open(r.Path)
	switch {
	case errors.Is(err, tensors.ErrNotARun) && !r.recorded("tensors"):
		s.Missing = "Not recorded: --tap-tensor 'l_out*'"
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
		s.Missing = "No tensor is in the capture: --tap-tensor 'l_out*'"
		return s, nil
	}
	source := "" // not known of a stream without an index
	if sum.BytesSource > 0 {
		source = present.Bytes(sum.BytesSource) + " as the model computed them, "
	}
	s.Text = append(s.Text, fmt.Sprintf("%s of %s, %s%s on disk.", present.Plural(sum.Packets, "captured tensor"),
		present.Plural(sum.Tokens, "token"), source, present.Bytes(sum.BytesStored)))
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
	if err := s.addAnalysis(ctx, run); err != nil {
		return nil, err
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

// lensTokens is how many tokens the logit lens of a report reads, and lensWork how many products it may take.
const (
	lensTokens = 8
	lensWork   = 1 << 34
)

// addAnalysis adds what llamatap analyze computes of the residual stream.
func (s *section) addAnalysis(ctx context.Context, run *tensors.Run) error {
	o := activations.Options{Filter: tensors.Filter{Tensor: activations.ResidualStream}, Lens: lensTokens}
	if m := run.Metadata; m == nil || m.Model.NLayer*m.Model.NVocab*m.Model.NEmbd > lensWork/lensTokens {
		o.Lens = 0
		s.Text = append(s.Text, "The logit lens takes longer than a report may: llamatap analyze --by lens.")
	}
	a, err := activations.Analyze(ctx, run, o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.Text = append(s.Text, "Residual stream: "+err.Error()+".")
		return nil
	}
	norms := &figure{Kind: drawnMatrix, Title: "L2 norm of the residual stream, by layer and token",
		Y: axis{Name: "L2 norm"}}
	text, column := map[int64]string{}, map[int64]int{}
	if a.TokenMetadata != nil {
		for _, t := range a.TokenMetadata.Tokens {
			text[t.Index] = " " + strconv.Quote(t.Text)
		}
	}
	var tokens []int64
	for _, t := range a.Tensors {
		for i := range t.Rows {
			tokens = append(tokens, t.Rows[i].Token)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	if n := len(tokens); n > maxAttention {
		norms.Note = fmt.Sprintf("The first %d of %d tokens.", maxAttention, n)
		tokens = tokens[:maxAttention]
	}
	for i, token := range tokens {
		column[token] = i
		norms.Columns = append(norms.Columns, "token "+strconv.FormatInt(token, 10)+text[token])
	}
	shades := &curve{Name: "L2 norm"}
	for _, t := range slices.Backward(a.Tensors) { // the last layer on top, as the lens has it
		row := slices.Repeat(values{math.NaN()}, len(tokens))
		for i := range t.Rows {
			if at, ok := column[t.Rows[i].Token]; ok && t.Rows[i].Moments != nil {
				row[at] = t.Rows[i].L2
			}
		}
		norms.Rows, shades.Y = append(norms.Rows, layerName(t.Layer)), append(shades.Y, row...)
	}
	norms.Series = []*curve{shades}
	s.Charts = append(s.Charts, norms)
	if c := lensChart(a.Lens, text); c != nil {
		s.Charts = append(s.Charts, c)
	}
	var none []string
	for _, t := range a.Document() {
		switch {
		case t.Name == "tensor" || t.Name == "correlation" || t.Name == "lens" && len(t.Rows) > 0:
		case len(t.Rows) == 0:
			none = append(none, t.Title+" (none). "+t.Note)
		default:
			s.Tables = append(s.Tables, &titled{t.Title, t.Cells()})
			s.Text = append(s.Text, t.Title+". "+t.Note)
		}
	}
	s.Text = append(s.Text, none...)
	return nil
}

// lensChart is the logit lens as shades of the probability of the most probable token; nil where there is none.
func lensChart(l *activations.Lens, text map[int64]string) *figure {
	if l == nil || len(l.Rows) == 0 {
		return nil
	}
	c := &figure{Kind: drawnMatrix, Title: "Logit lens: the most probable next token after each layer",
		Y: axis{Name: "probability"}}
	var tokens []int64
	var layers []int
	for _, r := range l.Rows {
		tokens, layers = append(tokens, r.Token), append(layers, r.Layer)
	}
	slices.Sort(tokens)
	slices.Sort(layers)
	tokens, layers = slices.Compact(tokens), slices.Compact(layers)
	slices.Reverse(layers)
	for _, layer := range layers {
		c.Rows = append(c.Rows, layerName(layer))
	}
	for _, token := range tokens {
		c.Columns = append(c.Columns, strconv.FormatInt(token, 10)+text[token])
	}
	shades := &curve{Name: "probability", Y: slices.Repeat(values{math.NaN()}, len(tokens)*len(layers)),
		Text: make([]string, len(tokens)*len(layers))}
	for _, r := range l.Rows {
		if len(r.Top) > 0 {
			at := slices.Index(layers, r.Layer)*len(tokens) + slices.Index(tokens, r.Token)
			shades.Y[at], shades.Text[at] = r.Top[0].Probability, strconv.Quote(r.Top[0].Text)
		}
	}
	c.Series = []*curve{shades}
	if l.Check != nil {
		c.Note = fmt.Sprintf("The last layer's logits differ from the captured ones by %.2g of their root mean square.",
			l.Check.NRMSE)
	}
	return c
}

// opNone is the op of a graph's inputs, such as masks and indices, which are not activations.
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
