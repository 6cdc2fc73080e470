package autoencoder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Row is a row of activations.
type Row struct {
	Values []float32 // valid during the call
	Source int       // number of the run or dataset
	Token  int64     // index in the run's tokens
}

// Rows are rows of one width, in an order that is always the same.
type Rows interface {
	Each(ctx context.Context, fn func(Row) error) error
}

// ErrNoRows occurs when there is nothing to train on.
var ErrNoRows = errors.New("no rows of activations")

// heldOut reports whether a row, by its number among all, is kept from training.
func heldOut(seed uint64, share float64, number int64) bool {
	x := (seed+1)*0x9e3779b97f4a7c15 + uint64(number)*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<53) < share
}

// Stats are those of the rows that are trained on.
type Stats struct {
	Width int       `json:"width"`
	Rows  int64     `json:"rows"`
	Held  int64     `json:"rows_held_out"`
	Norm  float64   `json:"mean_norm"` // mean length of a row
	Mean  []float64 `json:"mean"`
}

// measure reads all rows.
func measure(ctx context.Context, rows Rows, o Options) (*Stats, error) {
	s := &Stats{}
	err := split(ctx, rows, o.Seed, o.Holdout, func(row Row, held bool) error {
		if s.Width == 0 {
			s.Width, s.Mean = len(row.Values), make([]float64, len(row.Values))
		}
		if len(row.Values) != s.Width {
			return fmt.Errorf("rows of %d values and of %d: give recordings of one model and one point", s.Width,
				len(row.Values))
		}
		if held {
			s.Held++
			return nil
		}
		squares := 0.0
		for i, v := range row.Values {
			s.Mean[i] += float64(v)
			squares += float64(v) * float64(v)
		}
		if math.IsNaN(squares) || math.IsInf(squares, 0) {
			return fmt.Errorf("source %d, token %d: activations are not finite: 'llamatap analyze' counts them in "+
				"each layer",
				row.Source, row.Token)
		}
		s.Rows++
		s.Norm += math.Sqrt(squares)
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case s.Rows+s.Held == 0:
		return nil, fmt.Errorf("%w: the tensor has no row for each token, as attention patterns have none, or none "+
			"was captured: choose another point, or record this one with --tap-point", ErrNoRows)
	case s.Rows == 0:
		return nil, fmt.Errorf("%w but those held out, %d: record more, or give a smaller --holdout", ErrNoRows, s.Held)
	case s.Norm == 0:
		return nil, fmt.Errorf("%w but zeros, %d: choose another point", ErrNoRows, s.Rows)
	}
	for i := range s.Mean {
		s.Mean[i] /= float64(s.Rows)
	}
	s.Norm /= float64(s.Rows)
	return s, nil
}

// split calls fn with each row, and whether it is held out.
func split(ctx context.Context, rows Rows, seed uint64, share float64, fn func(row Row, held bool) error) error {
	number := int64(-1)
	return rows.Each(ctx, func(row Row) error {
		number++
		return fn(row, heldOut(seed, share, number))
	})
}

// shuffled calls fn with the rows of an epoch that are not held out: each takes a random place of a full buffer, whose
// row comes next.
func (t *Trainer) shuffled(ctx context.Context, rows Rows, epoch uint64, fn func([]float32) error) error {
	random := rand.New(rand.NewPCG(t.Seed, epoch+1))
	width := t.stats.Width
	places := int(max(min(t.BufferBytes/int64(4*width), t.stats.Rows), 1))
	buffer := make([]float32, 0, places*width)
	count := int64(0)
	err := split(ctx, rows, t.Seed, t.Holdout, func(row Row, held bool) error {
		if held {
			return nil
		}
		count++
		if len(row.Values) != width {
			return fmt.Errorf("%w: a row has %d values, and had %d", errChanged, len(row.Values), width)
		}
		if len(buffer) < cap(buffer) {
			buffer = append(buffer, row.Values...)
			return nil
		}
		place := buffer[random.IntN(places)*width:][:width]
		err := fn(place)
		copy(place, row.Values)
		return err
	})
	if err == nil && count != t.stats.Rows {
		err = fmt.Errorf("%w: there are %d rows, and were %d", errChanged, count, t.stats.Rows)
	}
	if err != nil {
		return err
	}
	for _, i := range random.Perm(len(buffer) / width) {
		if err := fn(buffer[i*width:][:width]); err != nil {
			return err
		}
	}
	return nil
}

// errChanged occurs when rows are not those that training began with.
var errChanged = errors.New("the recordings have changed since training began: train anew")
