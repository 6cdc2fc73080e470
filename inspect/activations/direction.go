package activations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// The methods of [Directions].
const (
	MeanDifference = "mean" // mean of the rows with the property less the mean of those without
	Principal      = "pca"  // first principal component of the differences of pairs, which need not have mean 0
)

// Methods are all of them.
var Methods = []string{MeanDifference, Principal}

// ErrNoRaw occurs where the length of a principal component is asked for, which has none.
var ErrNoRaw = errors.New("the length of a difference is kept with the method mean alone")

// ErrNoPairs occurs when two runs have no rows from which a direction can be made.
var ErrNoPairs = errors.New("no rows to compare")

// maxPairBytes bounds the rows that are kept.
const maxPairBytes = 1 << 30

// DirectionOptions choose how directions are made.
type DirectionOptions struct {
	Method string // "" is MeanDifference
	// All takes all prompt tokens, instead of the last one of each prompt.
	All bool
	// Raw keeps the length of mean differences; else directions have length 1.
	Raw bool
}

// Directions makes a control vector of the residual stream of prompts with a property and of those without it: for each
// layer from 1 on that both runs have captured.
func Directions(ctx context.Context, with, without *tensors.Run, o DirectionOptions) (*gguf.ControlVector, error) {
	if o.Raw && o.Method == Principal {
		return nil, ErrNoRaw
	}
	var sides [2]map[int][][]float64
	for i, r := range []*tensors.Run{with, without} {
		var err error
		if sides[i], err = promptRows(ctx, r, o.All); err != nil {
			return nil, err
		}
	}
	v := &gguf.ControlVector{Directions: map[int][]float32{}}
	for layer, p := range sides[0] {
		q := sides[1][layer]
		if layer < 1 || len(q) == 0 {
			continue
		}
		if len(p[0]) != len(q[0]) {
			return nil, fmt.Errorf("layer %d: %d channels and %d: take two runs of one model", layer, len(p[0]),
				len(q[0]))
		}
		row := meanOf(p)
		for k, x := range meanOf(q) {
			row[k] -= x
		}
		if o.Method == Principal {
			var err error
			if row, err = principal(p, q, row); err != nil {
				return nil, fmt.Errorf("layer %d: %w", layer, err)
			}
		}
		length := 0.0
		for _, x := range row {
			length += x * x
		}
		if length = math.Sqrt(length); length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
			return nil, fmt.Errorf("layer %d: the two runs do not differ, or hold values that are not finite", layer)
		}
		if o.Raw {
			length = 1
		}
		to := make([]float32, len(row))
		for k, x := range row {
			to[k] = float32(x / length)
		}
		v.Directions[layer] = to
		v.Layers = max(v.Layers, layer+1)
	}
	if len(v.Directions) == 0 {
		return nil, fmt.Errorf("%w: record both with --tap-tensor %s", ErrNoPairs, ResidualStream)
	}
	return v, nil
}

// promptRows are the rows of the residual stream of prompt tokens by layer, of all, or of the last one of each
// prompt. Prompts are in the order in which they begin, which is not that in which they end where several are computed
// at a time.
func promptRows(ctx context.Context, r *tensors.Run, all bool) (map[int][][]float64, error) {
	type prompt struct {
		ctx      uint32
		seq, req int32
	}
	first, last := map[prompt]int64{}, map[prompt]int64{}
	chosen := map[int64]int64{} // tokens, and where their prompt begins
	_, err := r.EachToken(func(t *tensors.Token) error {
		if t.Phase == "decode" {
			return nil
		}
		of := prompt{ctx: t.Ctx}
		if t.Seq != nil {
			of.seq = *t.Seq
		}
		if t.Request != nil {
			of.req = *t.Request
		}
		if before, ok := last[of]; ok && !all {
			delete(chosen, before)
		}
		if _, ok := first[of]; !ok {
			first[of] = t.Index
		}
		last[of], chosen[t.Index] = t.Index, first[of]
		return nil
	})
	if err != nil {
		return nil, err
	}
	type placed struct {
		prompt, token int64
		row           []float64
	}
	rows, bytes := map[int][]placed{}, 0
	err = tensors.EachTokenRow(ctx, r, tensors.Filter{Tensor: ResidualStream}, func(row *tensors.TokenRow) error {
		begin, ok := chosen[row.Token]
		if !ok {
			return nil
		}
		values := make([]float64, len(row.Values))
		for k, x := range row.Values {
			values[k] = float64(x)
		}
		if bytes += 8 * len(values); bytes > maxPairBytes {
			return fmt.Errorf("%s: the rows of its prompts take more than %d MiB: take the last token of each "+
				"prompt, or fewer prompts", r.Path, maxPairBytes>>20)
		}
		layer := int(row.Packet.Layer)
		rows[layer] = append(rows[layer], placed{begin, row.Token, values})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Path, err)
	}
	found := map[int][][]float64{}
	for layer, list := range rows {
		slices.SortStableFunc(list, func(a, b placed) int {
			return cmp.Or(cmp.Compare(a.prompt, b.prompt), cmp.Compare(a.token, b.token))
		})
		for _, p := range list {
			found[layer] = append(found[layer], p.row)
		}
	}
	return found, nil
}

// meanOf is the mean of rows.
func meanOf(rows [][]float64) []float64 {
	mean := make([]float64, len(rows[0]))
	for _, row := range rows {
		for k, x := range row {
			mean[k] += x / float64(len(rows))
		}
	}
	return mean
}

// principal is the unit vector along which the differences of pairs are largest, on the side of their mean.
func principal(p, q [][]float64, mean []float64) ([]float64, error) {
	n := len(p)
	if n != len(q) {
		return nil, fmt.Errorf("%d rows and %d: %s pairs prompts, in their order: give as many of both", n, len(q),
			Principal)
	}
	rows := mat.NewDense(n, len(mean), nil)
	for i := range n {
		for k := range mean {
			rows.Set(i, k, p[i][k]-q[i][k])
		}
	}
	var gram mat.SymDense
	gram.SymOuterK(1, rows)
	_, vectors, ok := eigen(&gram, true)
	if !ok {
		return mean, nil // they do not differ
	}
	var along mat.VecDense
	along.MulVec(rows.T(), vectors.ColView(n-1))
	side := 1.0
	if mat.Dot(&along, mat.NewVecDense(len(mean), mean)) < 0 {
		side = -1
	}
	row := make([]float64, len(mean))
	for k := range row {
		row[k] = side * along.AtVec(k)
	}
	return row, nil
}
