package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pair compares two sides.
type Pair struct {
	Base, Test Side
	Gates      []Gate
	Overhead   bool // the overhead that Test prints is compared with its speed, measured from outside
	// Possible says why the machine cannot run the pair, which is left out then; nil: any can.
	Possible func() error
}

// Gate is a ratio that Test must reach of Base.
type Gate struct {
	Name    string
	AtLeast float64 // 0: none, the ratio is printed
	Of      func(Sample) float64
	Equal   bool // the ratio must be one of two things that are the same: its interval holds 1
}

// judge is what the gate says of a ratio; "" where there is none.
func (g *Gate) judge(ratio Interval) Verdict {
	switch {
	case g.Equal:
		return ratio.holds(1)
	case g.AtLeast == 0:
		return ""
	}
	return ratio.AtLeast(g.AtLeast)
}

// limit is the gate as the table shows it.
func (g *Gate) limit() string {
	switch {
	case g.Equal:
		return "1"
	case g.AtLeast == 0:
		return ""
	}
	return "≥ " + strconv.FormatFloat(g.AtLeast, 'f', max(2, decimals(g.AtLeast)), 64)
}

// decimals is how many a number is written with.
func decimals(v float64) int {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	return len(text) - 1 - strings.IndexByte(text+".", '.')
}

// Decode and Prefill say what a gate compares.
func Decode(s Sample) float64  { return s.Decode }
func Prefill(s Sample) float64 { return s.Prefill }

// Outcome is what a pair's runs gave.
type Outcome struct {
	Ratios []Interval // one per gate
	Base   []Sample
	Test   []Sample
}

// Limits says how long a pair may be run.
type Limits struct {
	MinPairs int
	Time     time.Duration // until when pairs are added to resolve the gates
}

// Run runs pairs in random order, at least l.MinPairs, until every gate is resolved or the time is up.
func (p Pair) Run(ctx context.Context, l Limits, random *rand.Rand, progress func(string)) (Outcome, error) {
	var o Outcome
	end := time.Now().Add(l.Time)
	for {
		var base, test Sample
		run := []func() error{
			func() (err error) { base, err = p.Base.Run(ctx); return err },
			func() (err error) { test, err = p.Test.Run(ctx); return err },
		}
		if random.IntN(2) == 1 {
			slices.Reverse(run)
		}
		for _, f := range run {
			err := f()
			if ctx.Err() != nil { // what it says is how it was killed
				return o, ctx.Err()
			}
			if err != nil {
				return o, err
			}
		}
		o.Base, o.Test = append(o.Base, base), append(o.Test, test)
		o.Ratios = o.Ratios[:0]
		resolved := true
		for _, gate := range p.Gates {
			ratios := make([]float64, len(o.Base))
			for i := range ratios {
				ratios[i] = gate.Of(o.Test[i]) / gate.Of(o.Base[i])
			}
			interval := medianInterval(ratios)
			o.Ratios = append(o.Ratios, interval)
			resolved = resolved && gate.judge(interval) != Unresolved
		}
		progress(fmt.Sprintf("%s / %s: %d pairs, %v", p.Test.Name, p.Base.Name, len(o.Base), o.Ratios))
		if len(o.Base) >= l.MinPairs && (resolved || time.Now().After(end)) {
			return o, nil
		}
	}
}
