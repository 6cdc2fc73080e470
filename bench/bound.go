package bench

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bound is what a ratio must not be, such as decode<0.97: then a benchmark fails.
type Bound struct {
	Metric string // decode, prefill, both, ttft, itl or any, which stands for the first three
	Below  bool   // it fails below Limit, else above it
	Limit  float64
}

// boundMetrics are the names that a bound may have.
var boundMetrics = []string{"decode", "prefill", "both", "any", "ttft", "itl"}

var boundPattern = regexp.MustCompile(`^([a-z]+) *([<>]) *([0-9.]+)$`)

// ParseBounds reads bounds with commas between them.
func ParseBounds(text string) ([]Bound, error) {
	var bounds []Bound
	for part := range strings.SplitSeq(text, ",") {
		match := boundPattern.FindStringSubmatch(strings.TrimSpace(part))
		if match == nil || !slices.Contains(boundMetrics, match[1]) {
			return nil, fmt.Errorf("%q is not a bound: write decode<0.97 or ttft>1.1; the figures are %s", part,
				strings.Join(boundMetrics, ", "))
		}
		limit, err := strconv.ParseFloat(match[3], 64)
		if err != nil || limit <= 0 {
			return nil, fmt.Errorf("%q: the ratio %s is not a number above 0", part, match[3])
		}
		bounds = append(bounds, Bound{match[1], match[2] == "<", limit})
	}
	return bounds, nil
}

// String writes the bound as it is read.
func (b Bound) String() string {
	sign := ">"
	if b.Below {
		sign = "<"
	}
	return b.Metric + sign + strconv.FormatFloat(b.Limit, 'g', -1, 64)
}

func (b Bound) is(metric string) bool {
	return b.Metric == metric || b.Metric == "any" && slices.Contains(units[0].metrics, metric)
}

// atMost judges a ratio that must not exceed the limit, as AtLeast does one that must reach it.
func (i Interval) atMost(limit float64) Verdict {
	return Interval{-i.Median, -i.High, -i.Low, i.Pairs}.AtLeast(-limit)
}

// ofRatio judges a ratio of pairs: it fails when its whole interval lies on the wrong side.
func (b Bound) ofRatio(r *Ratio) Verdict {
	if b.Below {
		return r.Interval.AtLeast(b.Limit)
	}
	return r.Interval.atMost(b.Limit)
}

// ofChange judges a change: it fails when the ratio of the medians lies on the wrong side of the limit and the
// rank-sum test distinguishes new from old times the limit.
func (b Bound) ofChange(c *Change) Verdict {
	scaled := make([]float64, len(c.old))
	for i, v := range c.old {
		scaled[i] = v * b.Limit
	}
	switch {
	case mannWhitney(scaled, c.new) >= significant:
		return Unresolved
	case (c.Ratio.Median < b.Limit) == b.Below:
		return Failed
	}
	return Passed
}

// Judgement is what a bound says of one test.
type Judgement struct {
	Bound   Bound
	Test    string
	Ratio   Interval
	Verdict Verdict
}

// JudgeChanges holds changes against bounds.
func JudgeChanges(bounds []Bound, changes []Change) []Judgement {
	var judgements []Judgement
	for _, b := range bounds {
		for i := range changes {
			if c := &changes[i]; b.is(c.Metric) {
				judgements = append(judgements, Judgement{b, c.Test, c.Ratio, b.ofChange(c)})
			}
		}
	}
	return judgements
}

// JudgeRatios holds ratios of pairs against bounds.
func JudgeRatios(bounds []Bound, ratios []Ratio) []Judgement {
	var judgements []Judgement
	for _, b := range bounds {
		for i := range ratios {
			if r := &ratios[i]; b.is(r.Metric) {
				judgements = append(judgements, Judgement{b, r.Test + ", " + r.Other + " / " + r.Base, r.Interval,
					b.ofRatio(r)})
			}
		}
	}
	return judgements
}

// Blame is the error of the judgements that failed, or of bounds that nothing could be held against; nil for none.
func Blame(bounds []Bound, judgements []Judgement) error {
	var failed []string
	for _, b := range bounds {
		of := func(j Judgement) bool { return j.Bound == b }
		if !slices.ContainsFunc(judgements, of) {
			return fmt.Errorf("--fail-if %v: there is nothing to hold it against: no test with %s in both", b, b.Metric)
		}
	}
	for _, j := range judgements {
		if j.Verdict == Failed {
			failed = append(failed, fmt.Sprintf("%s %.3f", j.Test, j.Ratio.Median))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("--fail-if: %s", strings.Join(failed, "; "))
}
