package intervene

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
)

// ComparisonReport is what a comparison came to. Divergences are in nats.
type ComparisonReport struct {
	A           string  `json:"a"`
	B           string  `json:"b"`
	Partial     bool    `json:"partial"` // it was interrupted: of the chunks done until then
	Chunks      int     `json:"chunks"`
	Tokens      int     `json:"tokens"` // after which probabilities were compared
	PerplexityA float64 `json:"perplexity_a"`
	PerplexityB float64 `json:"perplexity_b"`
	KLMean      float64 `json:"kl_mean"` // of KL(a‖b)
	KLMedian    float64 `json:"kl_median"`
	KLP99       float64 `json:"kl_p99"`
	KLMax       float64 `json:"kl_max"`
	SameTop     float64 `json:"same_top"` // share of tokens after which both expect the same one most
	Diverges    float64 `json:"diverges_from"`
	First       *int    `json:"first_layer,omitempty"` // whose residual stream has that relative error
	// TrainedA and TrainedB are how many tokens a model was trained on at a time; absent where a chunk has no more.
	TrainedA int            `json:"trained_context_a,omitempty"`
	TrainedB int            `json:"trained_context_b,omitempty"`
	Chunk    int            `json:"chunk"` // tokens of a chunk
	Points   []PointError   `json:"points"`
	Missing  []MissingPoint `json:"points_missing,omitempty"`
	Worst    []WorstToken   `json:"worst_tokens"`
	Weights  []WeightError  `json:"weights,omitempty"` // largest KL first
	// sums of the negative logarithms of the next tokens' probabilities
	LossA float64 `json:"-"`
	LossB float64 `json:"-"`
}

// MissingPoint is a point that was asked for, and why it was not compared in any layer.
type MissingPoint struct {
	Point string `json:"point"`
	Why   string `json:"why"`
}

// PointError is how far the values of a point lie apart, over all rows.
type PointError struct {
	Point    string         `json:"point"`
	Layer    *int           `json:"layer,omitempty"`
	Rows     int            `json:"rows"`
	Relative float64        `json:"relative"` // root of the squares of b - a, by that of the squares of a
	Cosine   float64        `json:"cosine"`   // mean over rows
	Lowest   float64        `json:"cosine_min"`
	Channels []ChannelError `json:"worst_channels"`
}

// ChannelError is a column of a point, and its share of the squares of all differences.
type ChannelError struct {
	Channel int     `json:"channel"`
	Share   float64 `json:"share"`
}

// WorstToken is a token after which two models expect different ones.
type WorstToken struct {
	KL       float64 `json:"kl"`
	Chunk    int     `json:"chunk"`
	Position int     `json:"position"` // in the chunk
	Token    string  `json:"token"`
	Next     string  `json:"next"` // in the text
	A        string  `json:"a"`    // most probable
	B        string  `json:"b"`
}

// pointError sums up the differences of a point.
type pointError struct {
	ref                    ggmlhooks.PointRef
	rows                   int
	squares, cosine, least float64
	channels               []float64 // squares of differences, by column
}

// add takes a row into account.
func (p *pointError) add(a, b []float32) error {
	if p.rows == 0 {
		p.channels, p.least = make([]float64, len(a)), math.Inf(1)
	}
	if len(a) != len(p.channels) || len(b) != len(a) {
		return fmt.Errorf("%s has %d values in one model and %d in the other: compare models of one architecture",
			p.ref, len(a), len(b))
	}
	var dot, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
		p.channels[i] += (y - x) * (y - x)
	}
	cosine := 1.0
	if aa > 0 && bb > 0 {
		cosine = dot / math.Sqrt(aa*bb)
	}
	p.rows, p.squares, p.cosine, p.least = p.rows+1, p.squares+aa, p.cosine+cosine, min(p.least, cosine)
	return nil
}

func (p *pointError) settle() PointError {
	sum := 0.0
	order := make([]int, len(p.channels))
	for i, c := range p.channels {
		sum, order[i] = sum+c, i
	}
	e := PointError{Point: p.ref.Point.String(), Rows: p.rows, Cosine: p.cosine / float64(p.rows), Lowest: p.least,
		Channels: []ChannelError{}}
	if p.ref.Layer != ggmlhooks.NoLayer {
		e.Layer = &p.ref.Layer
	}
	if p.squares > 0 {
		e.Relative = math.Sqrt(sum / p.squares)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p.channels[j], p.channels[i]) })
	for _, i := range order[:min(worstChannels, len(order))] {
		if sum > 0 {
			e.Channels = append(e.Channels, ChannelError{i, p.channels[i] / sum})
		}
	}
	return e
}

// WriteText writes the report, and of weights at most top; 0 writes all.
func (r *ComparisonReport) WriteText(out io.Writer, top int) error {
	t := &present.Text{W: out}
	partial := ""
	if r.Partial {
		partial = " (interrupted)"
	}
	t.Line("a  %s: perplexity %.4f", r.A, r.PerplexityA)
	t.Line("b  %s: perplexity %.4f", r.B, r.PerplexityB)
	t.Line("after %d tokens of %d chunks%s: KL(a‖b) in nats:", r.Tokens, r.Chunks, partial)
	t.Line("   mean %.6g, median %.6g, 99 %% %.6g, max %.6g", r.KLMean, r.KLMedian, r.KLP99, r.KLMax)
	beyondLine(t, "a chunk", r.Chunk, "a", r.TrainedA)
	beyondLine(t, "a chunk", r.Chunk, "b", r.TrainedB)
	t.Line("the same most probable token: %.2f %%", 100*r.SameTop)
	residual := func(p PointError) bool { return p.Point == ggmlhooks.PointResidPost.String() }
	switch {
	case r.First != nil:
		t.Line("the residual stream diverges by %.3g of its size from layer %d on", r.Diverges, *r.First)
	case slices.ContainsFunc(r.Points, residual):
		t.Line("the residual stream diverges by less than %.3g of its size in every layer compared", r.Diverges)
	default:
		t.Line("the residual stream was not compared: add %s to --points", ggmlhooks.PointResidPost)
	}
	t.Line("")
	rows := [][]string{{"layer", "point", " relative", " cosine", " lowest", "worst channels"}}
	for _, p := range r.Points {
		channels := make([]string, min(3, len(p.Channels))) // JSON has all of them
		for i, c := range p.Channels[:len(channels)] {
			channels[i] = fmt.Sprintf("%d (%.1f %%)", c.Channel, 100*c.Share)
		}
		rows = append(rows, []string{number(p.Layer), p.Point, fmt.Sprintf("%.4f", p.Relative),
			fmt.Sprintf("%.5f", p.Cosine), fmt.Sprintf("%.4f", p.Lowest), strings.Join(channels, ", ")})
	}
	t.Columns(rows)
	for _, m := range r.Missing {
		t.Line("not compared, %s: %s", m.Point, m.Why)
	}
	t.Line("")
	rows = [][]string{{"after", " KL", "a expects", "b expects", "the text has", "at"}}
	for _, w := range r.Worst {
		rows = append(rows, []string{fmt.Sprintf("%q", w.Token), fmt.Sprintf("%.4f", w.KL), fmt.Sprintf("%q", w.A),
			fmt.Sprintf("%q", w.B), fmt.Sprintf("%q", w.Next), fmt.Sprintf("chunk %d, %d", w.Chunk, w.Position)})
	}
	t.Columns(rows)
	if len(r.Weights) == 0 {
		return t.Err
	}
	t.Line("")
	rows = [][]string{{"a with this weight of b", "type", " its error", " KL"}}
	for i, w := range r.Weights {
		if i == top && top > 0 {
			break
		}
		rows = append(rows, []string{w.Name, w.Type, fmt.Sprintf("%.4f", w.Relative), fmt.Sprintf("%.6g", w.KL)})
	}
	t.Columns(rows)
	return t.Err
}
