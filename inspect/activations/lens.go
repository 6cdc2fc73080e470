package activations

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/llamatap/llamatap/inspect/tensors"
)

// The bounds of the lens.
const (
	LensTop       = 5         // tokens that are listed of a layer
	MaxLensTokens = 64        // that it reads
	lensBytes     = 128 << 20 // of hidden states and captured logits
)

// logitsName is the tensor of logits.
const logitsName = "result_output"

// Lens is the logit lens (nostalgebraist 2020): what the model's own final norm and output head make of the residual
// stream after each layer.
type Lens struct {
	Model string     `json:"model,omitempty"` // file of the head
	Why   string     `json:"missing,omitempty"`
	Rows  []*LensRow `json:"rows"` // by token, then by layer
	// Check compares the last layer with the logits that the run captured; absent where it captured none.
	Check *LensCheck `json:"check,omitempty"`
}

// LensRow is the lens on one token after one layer.
type LensRow struct {
	Tensor string      `json:"layer_name"`
	Layer  int         `json:"layer"`
	Token  int64       `json:"token_index"`
	Top    []LensToken `json:"top"` // most probable next tokens
}

// LensToken is a possible next token.
type LensToken struct {
	ID          int32   `json:"token_id"`
	Text        string  `json:"token_text"`
	Logit       float64 `json:"logit"`
	Probability float64 `json:"probability"`
}

// LensCheck is how far the last layer's logits lie from the captured ones.
type LensCheck struct {
	Tokens  int     `json:"tokens"`
	NRMSE   float64 `json:"nrmse"`           // root mean square of the differences, divided by that of the logits
	Largest float64 `json:"largest"`         // difference
	Same    int     `json:"same_prediction"` // tokens of which both have the same most probable next token
}

// mostDifferent is the NRMSE above which a head is not that of the run. llama.cpp multiplies quantised matrices by
// states that it quantises, too: TestLens measures 0.006 with Q8_0, and 1e-7 with F32.
const mostDifferent = 0.1

// lensState is a hidden state and what the lens makes of it.
type lensState struct {
	row   *LensRow
	state []float32
	real  []float32 // captured logits, of the last layer
}

// makeLens reads the last o.Lens tokens of the last captured layer of the residual stream, in every layer.
func makeLens(ctx context.Context, r *tensors.Run, a *Analysis, o Options) (*Lens, error) {
	l := &Lens{Rows: []*LensRow{}}
	var last *Tensor
	for _, t := range a.Tensors {
		if t.isResidual() && (last == nil || t.Ctx == last.Ctx && t.Layer > last.Layer) {
			last = t
		}
	}
	if last == nil || r.Metadata == nil {
		l.Why = "the residual stream was not analysed: record with --tap-tensor 'l_out*'"
		return l, nil
	}
	h, err := openHead(o.Model, r.Metadata.Model)
	if err != nil {
		l.Why = err.Error()
		return l, nil
	}
	defer h.close()
	if int64(last.Width) != h.output.Shape[0] {
		l.Why = fmt.Sprintf("the output head takes %d values and %s has %d: give the run's model with --model",
			h.output.Shape[0], last.Name, last.Width)
		return l, nil
	}
	l.Model = cmp.Or(o.Model, r.Metadata.Model.Path)
	chosen := map[int64]bool{}
	for _, row := range last.Rows[max(0, len(last.Rows)-o.Lens):] {
		chosen[row.Token] = true
	}
	states, err := lensStates(ctx, r, last, chosen, h)
	if err != nil {
		return nil, err
	}
	if err := l.read(h, states); err != nil {
		l.Rows, l.Why = []*LensRow{}, err.Error()
		return l, nil
	}
	switch {
	case l.Check != nil && l.Check.NRMSE > mostDifferent:
		l.Why = fmt.Sprintf("the head of %s does not give the run's logits: they differ by %.3g of their root mean "+
			"square: give the run's model with --model", l.Model, l.Check.NRMSE)
		l.Rows = []*LensRow{}
	case l.Check == nil && !slices.Contains(testedArchs, h.arch):
		l.Why = fmt.Sprintf("the head of architecture %q was not compared with llama.cpp's logits: record them, "+
			"--tap-tensor 'l_out*,%s'", h.arch, logitsName)
		l.Rows = []*LensRow{}
	}
	return l, nil
}

// lensStates reads the hidden states of the chosen tokens, by token and layer, and their logits.
func lensStates(ctx context.Context, r *tensors.Run, last *Tensor, chosen map[int64]bool, h *head) (
	states []*lensState, err error) {
	size := int64(0)
	each := func(name string, fn func(row *tensors.TokenRow)) error {
		f := tensors.Filter{Tensor: name, Ctx: &last.Ctx}
		return tensors.EachTokenRow(ctx, r, f, func(row *tensors.TokenRow) error {
			if !chosen[row.Token] {
				return nil
			}
			if size += 4 * int64(len(row.Values)); size > lensBytes {
				return fmt.Errorf("the lens on %d tokens takes more than %d MiB: choose fewer with --lens", len(chosen),
					lensBytes>>20)
			}
			fn(row)
			return nil
		})
	}
	err = each(ResidualStream, func(row *tensors.TokenRow) {
		if len(row.Values) == last.Width {
			states = append(states, &lensState{state: h.normalise(row.Values),
				row: &LensRow{Tensor: row.Packet.Name, Layer: int(row.Packet.Layer), Token: row.Token}})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(states, func(x, y *lensState) int {
		return cmp.Or(cmp.Compare(x.row.Token, y.row.Token), cmp.Compare(x.row.Layer, y.row.Layer))
	})
	if r.Metadata.Model.NLayer > 0 && last.Layer != r.Metadata.Model.NLayer-1 {
		return states, nil // the last layer was not captured
	}
	err = each(logitsName, func(row *tensors.TokenRow) {
		for _, s := range states {
			if s.row.Token == row.Token && s.row.Layer == last.Layer && int64(len(row.Values)) == h.output.Shape[1] {
				s.real = slices.Clone(row.Values)
			}
		}
	})
	return states, err
}

// tally is what one worker has seen of the logits of a state.
type tally struct {
	top            []LensToken // the largest first
	most, sum      float64     // largest logit, and the sum of exp of each less most
	squares, error float64     // of the captured logits, and of the differences from them
	largest        float64
}

// add takes logits into account.
func (t *tally) add(first int32, logits, real []float32) {
	for i, v := range logits {
		x := float64(v)
		if x-x != 0 {
			continue // not finite: a damaged state or weight
		}
		if x > t.most || t.sum == 0 {
			t.sum, t.most = t.sum*math.Exp(t.most-x), x
		}
		t.sum += math.Exp(x - t.most)
		if len(t.top) < LensTop || x > t.top[LensTop-1].Logit {
			t.insert(LensToken{ID: first + int32(i), Logit: x})
		}
		if real != nil {
			want := float64(real[int(first)+i])
			if want-want != 0 {
				continue
			}
			t.squares += want * want
			t.error += (x - want) * (x - want)
			t.largest = max(t.largest, math.Abs(x-want))
		}
	}
}

// insert keeps the largest; of equal ones the smallest id.
func (t *tally) insert(token LensToken) {
	at, _ := slices.BinarySearchFunc(t.top, token, func(x, y LensToken) int {
		return cmp.Or(cmp.Compare(y.Logit, x.Logit), cmp.Compare(x.ID, y.ID))
	})
	t.top = slices.Insert(t.top, at, token)
	t.top = t.top[:min(len(t.top), LensTop)]
}

// merge takes the tally of another worker into account.
func (t *tally) merge(o *tally) {
	if o.sum == 0 {
		return
	}
	most := max(t.most, o.most)
	if t.sum == 0 {
		most = o.most
	}
	t.sum = t.sum*math.Exp(t.most-most) + o.sum*math.Exp(o.most-most)
	t.most = most
	for _, token := range o.top {
		t.insert(token)
	}
	t.squares, t.error, t.largest = t.squares+o.squares, t.error+o.error, max(t.largest, o.largest)
}

// read applies the head to the states.
func (l *Lens) read(h *head, states []*lensState) error {
	vectors := make([][]float32, len(states))
	for i, s := range states {
		vectors[i] = s.state
	}
	tallies := make([][]tally, runtime.GOMAXPROCS(0))
	for w := range tallies {
		tallies[w] = make([]tally, len(states))
	}
	err := h.logits(vectors, func(worker, i int, first int32, logits []float32) {
		tallies[worker][i].add(first, logits, states[i].real)
	})
	if err != nil {
		return err
	}
	var squares, wrong float64
	for i, s := range states {
		t := &tallies[0][i]
		for w := range tallies[1:] {
			t.merge(&tallies[w+1][i])
		}
		for k := range t.top {
			t.top[k].Probability = math.Exp(t.top[k].Logit-t.most) / t.sum
			t.top[k].Text = string(h.vocab.Piece(t.top[k].ID))
		}
		s.row.Top = t.top
		l.Rows = append(l.Rows, s.row)
		if t.squares == 0 {
			continue
		}
		if l.Check == nil {
			l.Check = &LensCheck{}
		}
		l.Check.Tokens++
		l.Check.Largest = max(l.Check.Largest, t.largest)
		squares, wrong = squares+t.squares, wrong+t.error
		best := slices.Index(s.real, slices.Max(s.real))
		if best >= 0 && len(t.top) > 0 && t.top[0].ID == int32(best) {
			l.Check.Same++
		}
	}
	if l.Check != nil {
		l.Check.NRMSE = math.Sqrt(wrong / squares)
	}
	return nil
}
