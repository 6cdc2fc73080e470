package activations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// ResidualStream is the name of the residual stream after a layer, without its number.
const ResidualStream = "l_out"

// The definitions. Sources are in docs/ANALYZE.md.
const (
	OutlierRMS   = 6.0    // an outlier is more than this many times its token's root mean square
	OutlierShare = 0.5    // an outlier channel is one in more than this share of the tokens
	MassiveValue = 100.0  // a massive activation is at least this large
	MassiveRatio = 1000.0 // and at least this many times the median magnitude of its token
)

// The bounds of memory.
const (
	maxRows       = 1 << 20   // tokens of all tensors together
	maxMassive    = 1 << 12   // massive activations that are listed; more are counted
	sampledBytes  = 128 << 20 // rows that are kept for effective rank and principal components
	sampledTokens = 256       // of them, of one tensor
	sampledRows   = 1 << 16   // of them, of all tensors: the time that eigenvalues take grows with their cube
	progressRows  = 1 << 10   // from one call of Options.Progress to the next
)

// Options choose what is analysed. The zero value of each field chooses everything, except where it says otherwise.
type Options struct {
	// Filter selects tensors; without Tensor and Layer it is the residual stream, or everything in a run without.
	Filter     tensors.Filter
	First, End int64 // tokens First ≤ i < End; End -1 means no end, 0 with First 0 is all
	// Metric is what is correlated, a key of [Row]: l2_norm where it is "".
	Metric         string
	MinCorrelation float64 // pairs of a smaller |r| are left out
	Top            int     // pairs that are kept; 0: all
	Lens           int     // tokens that the logit lens reads, the last chosen ones; 0: none
	Model          string  // GGUF file of the lens, which must fit the run; "": the one that the run names, if it does
	// Progress, where it is not nil, is called with the rows that were read, of all.
	Progress func(done, total int64)
}

// Analysis is what was computed of a run's tensors. Its keys stream_path to token_metadata and correlations are
// those of STRAP-LLM's analyze_activations_with_tokens and analyze_circuits.
type Analysis struct {
	Path            string               `json:"stream_path"`
	Model           string               `json:"model,omitempty"`
	Compression     string               `json:"compression"` // of the packets, joined by commas where they differ
	Packets         int64                `json:"packets"`
	Bytes           int64                `json:"total_compressed_bytes"`
	PerLayer        map[string]LayerSize `json:"per_layer"` // by tensor name
	PacketsPerToken float64              `json:"packets_per_token,omitempty"`
	BytesPerToken   float64              `json:"bytes_per_token,omitempty"`
	TokenMetadata   *TokenMetadata       `json:"token_metadata,omitempty"`

	Tensors      []*Tensor     `json:"tensors"`            // by name without layer, then by layer
	Left         []string      `json:"left_out,omitempty"` // selected tensors that hold no whole rows of tokens
	Massive      []Massive     `json:"massive"`            // the largest first
	MassiveLeft  int           `json:"massive_left_out,omitempty"`
	Sinks        *Sinks        `json:"attention_sinks"`
	Lens         *Lens         `json:"logit_lens,omitempty"`
	Metric       string        `json:"metric"` // of the correlations
	Correlations []Correlation `json:"correlations"`
}

// LayerSize is what the stream holds of one tensor.
type LayerSize struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// TokenMetadata are the analysed tokens.
type TokenMetadata struct {
	Total  int             `json:"total_tokens"`
	Tokens []tensors.Token `json:"tokens"`
}

// Tensor is one captured tensor in one context.
type Tensor struct {
	Name  string `json:"layer_name"` // with the number of its context, except in the first
	Layer int    `json:"layer"`
	Ctx   uint32 `json:"ctx"`
	Width int    `json:"width"` // values of a token: channels
	tensors.Stats
	Outliers []Channel `json:"outlier_channels"`
	// Cosine is how similar a token's row is to that of Before, the captured layer before; absent of the first one.
	Cosine *Cosine `json:"cosine,omitempty"`
	Space  *Space  `json:"space,omitempty"`
	Rows   []Row   `json:"rows"` // by token
	// TokensLeft are chosen tokens of which the captured values are not a whole row.
	TokensLeft int64 `json:"tokens_left_out,omitempty"`

	stem     string // the node's name, without layer
	sum      tensors.Accumulator
	channels []channelSum
	sampled  [][]float32
	places   []int // of the sampled rows, in Rows
	total    int64 // rows that the run has
	captured int64 // chosen tokens of which it has something
}

// Row are the figures of one token, over its finite values.
type Row struct {
	Token    int64   `json:"token_index"`
	Sparsity float64 `json:"sparsity"` // share of exact zeros
	*tensors.Moments
	Cosine *float64 `json:"cosine,omitempty"` // to the captured layer before
	// Component are the coordinates on the first two principal components; absent of tokens that were not sampled.
	Component []float64 `json:"principal_components,omitempty"`
}

// Metrics are the keys of [Row] that can be correlated and drawn.
var Metrics = []string{"l2_norm", "mean", "std", "max", "min", "sparsity"}

// metric is the value of a key; NaN where the token has no finite value.
func (r *Row) metric(key string) float64 {
	switch {
	case key == "sparsity":
		return r.Sparsity
	case r.Moments == nil:
		return math.NaN()
	}
	return map[string]float64{"l2_norm": r.L2, "mean": r.Mean, "std": r.Std, "max": r.Max, "min": r.Min}[key]
}

// Channel is a channel whose magnitude is more than OutlierRMS times the token's root mean square in more than
// OutlierShare of the tokens.
type Channel struct {
	Channel int     `json:"channel"`
	Share   float64 `json:"share"`   // of the tokens
	Mean    float64 `json:"mean"`    // value, over the tokens
	Largest float64 `json:"largest"` // magnitude
}

type channelSum struct {
	finite, outliers int
	sum              float64
	largest          float32
}

// Massive is a massive activation (Sun et al. 2024).
type Massive struct {
	Tensor  string  `json:"layer_name"`
	Layer   int     `json:"layer"`
	Token   int64   `json:"token_index"`
	Channel int     `json:"channel"`
	Value   float64 `json:"value"`
	Median  float64 `json:"median"` // of the magnitudes of the token's row
}

// Cosine is the similarity of the rows of two layers.
type Cosine struct {
	Before string  `json:"before"`
	N      int     `json:"n"` // tokens that both have
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
}

// Analyze reads the selected tensors once, in bounded memory: a packet, a micro-batch of two layers of the residual
// stream, 128 MiB of sampled rows, and up to a million rows of figures. More rows are an error.
func Analyze(ctx context.Context, r *tensors.Run, o Options) (*Analysis, error) {
	if o.End == 0 {
		o.First, o.End = 0, -1
	}
	if o.End < 0 {
		o.End = math.MaxInt64
	}
	if r.Kind == tensors.KindForeign {
		return nil, fmt.Errorf("%s: a stream without index does not state which tokens its packets are of: analyze a "+
			"run directory, or a stream with its .idx", r.Path)
	}
	all, err := tensors.Summarize(r, tensors.Filter{})
	if err != nil {
		return nil, err
	}
	if o.Filter.Tensor == "" && o.Filter.Layer == nil && slices.ContainsFunc(all.Layers, func(l tensors.Layer) bool {
		return slices.ContainsFunc(l.Tensors, func(t tensors.Tensor) bool {
			return ggmlhooks.WithoutLayer(t.Name) == ResidualStream
		})
	}) {
		o.Filter.Tensor = ResidualStream
	}
	selected, err := tensors.Summarize(r, o.Filter)
	if err != nil {
		return nil, err
	}
	b := builder{o: o, byKey: map[key]*Tensor{},
		chosen: max(0, min(o.End, all.Tokens)-o.First),
		a: &Analysis{Path: r.Path, Model: all.Model, Packets: all.Packets, Bytes: all.BytesStored,
			PacketsPerToken: all.PacketsPerToken, BytesPerToken: all.BytesPerToken,
			Metric:  cmp.Or(o.Metric, Metrics[0]),
			Massive: []Massive{}, PerLayer: map[string]LayerSize{}}}
	b.describe(all)
	b.plan(selected)
	if err := cmp.Or(b.countCaptured(r), tensors.EachTokenRow(ctx, r, o.Filter, b.add)); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Path, err)
	}
	if err := b.finish(ctx); err != nil {
		return nil, err
	}
	if len(b.a.Tensors) == 0 {
		if len(b.a.Left) > 0 {
			return nil, fmt.Errorf("%s: nothing to analyse: %s: no row of the chosen tokens: choose other tensors "+
				"with --tensor, or record without sampled_slices", r.Path, b.a.left())
		}
		return nil, r.Unknown(o.Filter)
	}
	if b.a.Sinks, err = findSinks(ctx, r, o); err != nil {
		return nil, err
	}
	if o.Lens > 0 {
		if b.a.Lens, err = makeLens(ctx, r, b.a, o); err != nil {
			return nil, err
		}
		if why := b.a.Lens.Why; why != "" && o.Model != "" { // asked for by name
			return nil, fmt.Errorf("--model %s: no logit lens: %s", o.Model, why)
		}
	}
	return b.a, b.readTokens(r)
}

// isResidual reports whether a tensor is the residual stream after a layer.
func (t *Tensor) isResidual() bool { return t.stem == ResidualStream }

type key struct {
	ctx  uint32
	name string
}

// builder makes an analysis of rows in stream order.
type builder struct {
	a          *Analysis
	o          Options
	byKey      map[key]*Tensor
	budget     int64 // rows that are sampled of each tensor
	chosen     int64 // tokens
	rows       int
	total      int64    // rows of the selected tensors
	stage      [2]stage // the residual stream: of the layer that is read, and of the one before
	magnitudes []float64
}

// stage is the residual stream of one micro-batch after a layer.
type stage struct {
	tensor *Tensor
	exec   uint64
	at     map[int64]int // row of a token, in values
	values []float32
}

// describe fills in what the index says of the whole stream.
func (b *builder) describe(all *tensors.Summary) {
	var codecs []string
	for i := range all.Layers {
		for k := range all.Layers[i].Tensors {
			t := &all.Layers[i].Tensors[k]
			size := b.a.PerLayer[t.Name]
			b.a.PerLayer[t.Name] = LayerSize{size.Count + t.Packets, size.Bytes + t.BytesStored}
			if !slices.Contains(codecs, t.Codec) {
				codecs = append(codecs, t.Codec)
			}
		}
	}
	b.a.Compression = strings.Join(codecs, ",")
}

// plan makes the tensors, and settles how many rows of each are sampled.
func (b *builder) plan(selected *tensors.Summary) {
	values := int64(0)
	for i := range selected.Layers {
		for k := range selected.Layers[i].Tensors {
			s := &selected.Layers[i].Tensors[k]
			t := &Tensor{Name: s.Name, Layer: s.Layer, Ctx: s.Ctx, stem: ggmlhooks.WithoutLayer(s.Name),
				total:    s.Tokens,
				Outliers: []Channel{}}
			if s.Ctx > 0 {
				t.Name = fmt.Sprintf("%s (ctx %d)", s.Name, s.Ctx)
			}
			b.byKey[key{s.Ctx, s.Name}] = t
			b.total += min(s.Tokens, b.chosen)
			b.a.Tensors = append(b.a.Tensors, t)
			width := int64(1)
			for d, n := range s.Shape {
				if d != s.RowDim && n > 0 {
					width = min(width*n, sampledBytes)
				}
			}
			values += width
		}
	}
	b.budget = min(sampledTokens, sampledRows/int64(max(len(b.byKey), 1)), sampledBytes/4/max(values, 1))
}

// add takes a row into account.
func (b *builder) add(row *tensors.TokenRow) error {
	if row.Token < b.o.First || row.Token >= b.o.End {
		return nil
	}
	t := b.byKey[key{row.Packet.Ctx, row.Packet.Name}]
	if t.Width == 0 {
		t.Width, t.channels = len(row.Values), make([]channelSum, len(row.Values))
	}
	if len(row.Values) != t.Width {
		return fmt.Errorf("tensor %s has rows of %d and of %d values: choose tokens of one width with --token", t.Name,
			t.Width, len(row.Values))
	}
	if b.rows++; b.rows > maxRows {
		return fmt.Errorf("more than %d rows of tensors and tokens: choose some with --token, --layer or --tensor",
			maxRows)
	}
	if b.o.Progress != nil && b.rows%progressRows == 0 {
		b.o.Progress(int64(b.rows), b.total)
	}
	var sum tensors.Accumulator
	sum.Add(row.Values)
	t.sum.Merge(&sum)
	stats := sum.Stats()
	figures := Row{Token: row.Token, Sparsity: stats.Sparsity, Moments: stats.Moments}
	if stats.Moments != nil {
		b.addChannels(t, row, &stats)
	}
	if t.isResidual() {
		figures.Cosine = b.compare(t, row)
	}
	// of n tokens, the sampled ones are the i with ⌊i·budget/n⌋ above that of the one before
	i, n := int64(len(t.Rows)), min(t.total, b.chosen)
	if i == 0 || n <= b.budget || i*b.budget/n > (i-1)*b.budget/n {
		if int64(len(t.sampled)) < b.budget {
			t.sampled, t.places = append(t.sampled, slices.Clone(row.Values)), append(t.places, len(t.Rows))
		}
	}
	t.Rows = append(t.Rows, figures)
	return nil
}

// addChannels looks for outliers and massive activations.
func (b *builder) addChannels(t *Tensor, row *tensors.TokenRow, stats *tensors.Stats) {
	limit := OutlierRMS * stats.L2 / math.Sqrt(float64(stats.Elements-stats.NaN-stats.Inf))
	largest := max(math.Abs(stats.Min), math.Abs(stats.Max))
	small := 0
	for i, v := range row.Values {
		size := math.Abs(float64(v))
		if !(size <= math.MaxFloat32) {
			continue
		}
		c := &t.channels[i]
		c.finite++
		c.sum += float64(v)
		c.largest = max(c.largest, float32(size))
		if size > limit {
			c.outliers++
		}
		if size <= largest/MassiveRatio {
			small++
		}
	}
	// the median cannot be that small unless half of the values are
	if largest < MassiveValue || 2*small < len(row.Values)-1 {
		return
	}
	b.magnitudes = b.magnitudes[:0]
	for _, v := range row.Values {
		if size := math.Abs(float64(v)); size <= math.MaxFloat32 {
			b.magnitudes = append(b.magnitudes, size)
		}
	}
	slices.Sort(b.magnitudes)
	n := len(b.magnitudes)
	median := (b.magnitudes[(n-1)/2] + b.magnitudes[n/2]) / 2
	for i, v := range row.Values {
		size := math.Abs(float64(v))
		if size < MassiveValue || size < MassiveRatio*median || size > math.MaxFloat32 {
			continue
		}
		if len(b.a.Massive) == maxMassive {
			b.a.MassiveLeft++
			continue
		}
		b.a.Massive = append(b.a.Massive, Massive{t.Name, t.Layer, row.Token, i, float64(v), median})
	}
}

// compare remembers a row of the residual stream and returns its cosine to that of the layer before; nil where there
// is none.
func (b *builder) compare(t *Tensor, row *tensors.TokenRow) *float64 {
	now, before := &b.stage[0], &b.stage[1]
	if now.tensor != t || now.exec != row.Packet.Exec {
		*now, *before = *before, *now
		*now = stage{tensor: t, exec: row.Packet.Exec, at: map[int64]int{}, values: now.values[:0]}
	}
	now.at[row.Token] = len(now.values)
	now.values = append(now.values, row.Values...)
	if before.tensor == nil || before.exec != now.exec || before.tensor.Ctx != t.Ctx ||
		before.tensor.Layer >= t.Layer || before.tensor.Width != t.Width {
		return nil
	}
	at, ok := before.at[row.Token]
	if !ok {
		return nil
	}
	if t.Cosine == nil {
		t.Cosine = &Cosine{Before: before.tensor.Name, Min: 1}
	}
	var dot, aa, bb float64
	for i, v := range row.Values {
		x, y := float64(v), float64(before.values[at+i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	c := dot / math.Sqrt(aa) / math.Sqrt(bb)
	if math.IsNaN(c) || math.IsInf(c, 0) {
		return nil // a row of zeros has no direction
	}
	c = max(-1, min(1, c))
	t.Cosine.N++
	t.Cosine.Mean += (c - t.Cosine.Mean) / float64(t.Cosine.N)
	t.Cosine.Min = min(t.Cosine.Min, c)
	return &c
}

// finish computes what needs all rows.
func (b *builder) finish(ctx context.Context) error {
	b.a.Tensors = slices.DeleteFunc(b.a.Tensors, func(t *Tensor) bool {
		if len(t.Rows) == 0 {
			b.a.Left = append(b.a.Left, t.Name)
		}
		return len(t.Rows) == 0
	})
	slices.SortStableFunc(b.a.Tensors, func(x, y *Tensor) int {
		return cmp.Or(cmp.Compare(x.Ctx, y.Ctx),
			strings.Compare(ggmlhooks.WithoutLayer(x.Name), ggmlhooks.WithoutLayer(y.Name)),
			cmp.Compare(x.Layer, y.Layer))
	})
	for _, t := range b.a.Tensors {
		t.Stats, t.TokensLeft = t.sum.Stats(), max(0, t.captured-int64(len(t.Rows)))
		for i, c := range t.channels {
			if share := float64(c.outliers) / float64(len(t.Rows)); share > OutlierShare {
				t.Outliers = append(t.Outliers, Channel{i, share, c.sum / float64(c.finite), float64(c.largest)})
			}
		}
		slices.SortFunc(t.Outliers, func(x, y Channel) int { return cmp.Compare(y.Largest, x.Largest) })
	}
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(b.a.Tensors) && ctx.Err() == nil; i += workers {
				t := b.a.Tensors[i]
				t.span()
				t.channels, t.sampled = nil, nil
				slices.SortStableFunc(t.Rows, func(x, y Row) int { return cmp.Compare(x.Token, y.Token) })
			}
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	slices.SortStableFunc(b.a.Massive, func(x, y Massive) int {
		return cmp.Compare(math.Abs(y.Value), math.Abs(x.Value))
	})
	b.a.correlate(b.o.MinCorrelation, b.o.Top)
	return nil
}

// readTokens fills in the tokens that have rows.
func (b *builder) readTokens(r *tensors.Run) error {
	has := map[int64]bool{}
	for _, t := range b.a.Tensors {
		for i := range t.Rows {
			has[t.Rows[i].Token] = true
		}
	}
	b.a.TokenMetadata = &TokenMetadata{Total: len(has), Tokens: []tensors.Token{}}
	_, err := r.EachToken(func(t *tensors.Token) error {
		if has[t.Index] {
			b.a.TokenMetadata.Tokens = append(b.a.TokenMetadata.Tokens, *t)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		b.a.TokenMetadata, err = nil, nil
	}
	return err
}
