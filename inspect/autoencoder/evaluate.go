package autoencoder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
)

// EvaluateOptions choose rows, and what is kept of them.
type EvaluateOptions struct {
	All      bool // all rows, instead of those that training held out
	Contexts int  // places of each feature
	Progress func(rows int64)
}

// Evaluation is how well an autoencoder explains rows. All of it is computed from these rows.
type Evaluation struct {
	Rows              int64   `json:"rows"`
	ExplainedVariance float64 `json:"explained_variance"` // 1 - squared errors / squared distances from the rows' mean
	SquaredError      float64 `json:"squared_error"`      // mean of a row, summed over its values
	L0                float64 `json:"l0"`                 // active features per row
	Dead              int     `json:"dead"`               // features that no row activates
	// Features are all, by number.
	Features []Feature `json:"features"`
}

// Feature is what rows show of a feature.
type Feature struct {
	Number   int       `json:"feature"`
	Density  float64   `json:"density"` // share of the rows that activate it
	Mean     float64   `json:"mean"`    // of its activations, where it is active
	Max      float32   `json:"max"`
	Contexts []Context `json:"contexts,omitzero"` // by activation, the strongest first
}

// Context is a token that activates a feature, with its neighbours in the sequence.
type Context struct {
	Activation float32 `json:"activation"`
	Source     int     `json:"source"` // number of the run
	TokenIndex int64   `json:"token_index"`
	Before     string  `json:"before"`
	Token      string  `json:"token"`
	After      string  `json:"after"`
}

// ErrWidth occurs when rows are of another width than the autoencoder.
var ErrWidth = errors.New("the rows are of another model or point than the autoencoder")

// evaluator adds up what blocks of rows show.
type evaluator struct {
	*Evaluation
	sae              *SAE
	contexts         int
	encoders         []*encoder
	rows             []Row
	values           []float32
	active           []activity
	errors           []float64
	sums             []float64 // of each value
	squares, squared float64   // of values, of errors
	count            []int64   // of each feature
}

// Evaluate evaluates an autoencoder on rows. Memory holds some hundred rows.
func Evaluate(ctx context.Context, s *SAE, e Engine, rows Rows, o EvaluateOptions) (*Evaluation, error) {
	const blocks = 4 // of each worker
	n := blockRows * blocks * workers()
	v := &evaluator{Evaluation: &Evaluation{Features: make([]Feature, s.Features)}, sae: s, contexts: o.Contexts,
		active: make([]activity, n), errors: make([]float64, n), sums: make([]float64, s.Width),
		count: make([]int64, s.Features)}
	if o.Contexts > 0 {
		for i := range v.Features {
			v.Features[i].Contexts = []Context{}
		}
	}
	for range workers() {
		v.encoders = append(v.encoders, s.encoder(e))
	}
	share, seed := 0.0, uint64(0)
	if p := s.About.Options; p != nil {
		share, seed = p.Holdout, p.Seed
	}
	err := split(ctx, rows, seed, share, func(row Row, held bool) error {
		if !held && !o.All {
			return nil
		}
		if len(row.Values) != s.Width {
			return fmt.Errorf("%w: %d values, and it was trained on %d", ErrWidth, len(row.Values), s.Width)
		}
		v.values = append(v.values, row.Values...)
		row.Values = nil
		if v.rows = append(v.rows, row); len(v.rows) == n {
			v.flush()
			if o.Progress != nil {
				o.Progress(v.Rows)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.flush()
	if v.Rows == 0 {
		return nil, fmt.Errorf("%w to evaluate: the recordings have no row that training held out: give --all for all "+
			"rows, or other recordings", ErrNoRows)
	}
	v.finish()
	return v.Evaluation, nil
}

// flush evaluates the rows that were collected.
func (v *evaluator) flush() {
	width := v.sae.Width
	parallel(len(v.encoders), (len(v.rows)+blockRows-1)/blockRows, func(worker, b int) {
		c, out := v.encoders[worker], make([]float32, width)
		first, end := b*blockRows, min((b+1)*blockRows, len(v.rows))
		centred := slices.Clone(v.values[first*width : end*width])
		for i := range centred {
			centred[i] -= v.sae.DecoderBias[i%width]
		}
		c.preactivate(centred)
		for r := first; r < end; r++ {
			c.activate(&v.active[r], c.row(r-first), 0)
			c.decode(out, &v.active[r])
			v.errors[r] = 0
			for i, x := range v.values[r*width:][:width] {
				d := float64(x) - float64(out[i])
				v.errors[r] += d * d
			}
		}
	})
	for r, row := range v.rows {
		v.Rows++
		v.squared += v.errors[r]
		for i, x := range v.values[r*width:][:width] {
			v.sums[i] += float64(x)
			v.squares += float64(x) * float64(x)
		}
		for i, f := range v.active[r].index {
			v.add(&v.Features[f], row, v.active[r].value[i])
			v.count[f]++
		}
	}
	v.rows, v.values = v.rows[:0], v.values[:0]
}

// add adds an activation to a feature.
func (v *evaluator) add(f *Feature, row Row, activation float32) {
	f.Mean += float64(activation)
	f.Max = max(f.Max, activation)
	if n := len(f.Contexts); v.contexts == 0 || n == v.contexts && activation <= f.Contexts[n-1].Activation {
		return
	}
	at := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Activation < activation })
	if at < 0 {
		at = len(f.Contexts)
	}
	f.Contexts = slices.Insert(f.Contexts, at, Context{Activation: activation, Source: row.Source,
		TokenIndex: row.Token})
	f.Contexts = f.Contexts[:min(len(f.Contexts), v.contexts)]
}

func (v *evaluator) finish() {
	n := float64(v.Rows)
	variance := v.squares
	for _, sum := range v.sums {
		variance -= sum * sum / n
	}
	v.ExplainedVariance = 1 - v.squared/variance
	v.SquaredError = v.squared / n
	for f, count := range v.count {
		feature := &v.Features[f]
		feature.Number, feature.Density = f, float64(count)/n
		if count > 0 {
			feature.Mean /= float64(count)
		} else {
			v.Dead++
		}
		v.L0 += feature.Density
	}
}

// How many tokens of a context are read before and after its own.
const (
	tokensBefore = 12
	tokensAfter  = 6
)

// sequence is what a token's neighbours have in common.
type sequence struct {
	ctx      uint32
	seq, req int32
}

func sequenceOf(t *tensors.Token) sequence { return sequence{t.Ctx, value(t.Seq), value(t.Request)} }

// value is -1 for what is unknown.
func value(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// AddTexts adds the texts of tokens to the contexts of an evaluation. Recordings without texts have none.
func (r *Recordings) AddTexts(e *Evaluation) error {
	type place struct {
		source int
		token  int64
	}
	wanted, near := map[place][]*Context{}, map[place]bool{}
	for f := range e.Features {
		for i := range e.Features[f].Contexts {
			c := &e.Features[f].Contexts[i]
			at := place{c.Source, c.TokenIndex}
			wanted[at] = append(wanted[at], c)
			for token := at.token - tokensBefore; token <= at.token+tokensAfter; token++ {
				near[place{c.Source, token}] = true
			}
		}
	}
	type open struct { // contexts whose following tokens are being read
		contexts []*Context
		left     int
	}
	type reading struct {
		before []string
		open   []open
	}
	for number, from := range r.sources {
		sequences := map[sequence]*reading{}
		isNear := func(token int64) bool { return near[place{number, token}] }
		err := from.eachToken(isNear, func(t *tensors.Token) error {
			key := sequenceOf(t)
			s := sequences[key]
			if s == nil {
				s = &reading{}
				sequences[key] = s
			}
			for i := range s.open {
				s.open[i].left--
				for _, c := range s.open[i].contexts {
					c.After += t.Piece()
				}
			}
			s.open = slices.DeleteFunc(s.open, func(o open) bool { return o.left == 0 })
			if contexts := wanted[place{number, t.Index}]; contexts != nil {
				for _, c := range contexts {
					c.Before, c.Token = strings.Join(s.before, ""), t.Piece()
				}
				s.open = append(s.open, open{contexts, tokensAfter})
			}
			if s.before = append(s.before, t.Piece()); len(s.before) > tokensBefore {
				s.before = slices.Delete(s.before, 0, 1)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, contexts := range wanted {
		for _, c := range contexts { // a context may begin or end within a character, and a token may be a part of one
			for _, text := range []*string{&c.Before, &c.Token, &c.After} {
				*text = strings.ToValidUTF8(*text, "\uFFFD")
			}
		}
	}
	return nil
}
