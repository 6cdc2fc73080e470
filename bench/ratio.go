package bench

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ratio is one configuration over another on the same test: tokens per second, in pairs of the same round.
type Ratio struct {
	Test     string // such as tg128, with the prompt's name where it is a text, and the settings that vary
	Base     string // the settings in which the base differs from the other
	Other    string
	Interval Interval
	Metric   string // decode, prefill or both
}

// Ratios compares, on each test of each model, every tap configuration with the first one at the same settings, and
// the settings with the first ones. Pairs are of the same round; where a round has several repetitions, its median
// counts.
func Ratios(rows []Row) []Ratio {
	var ratios []Ratio
	bases := map[string]*Row{}
	for i := range rows {
		r := &rows[i]
		test := testName(r) + "\x00" + r.ModelFile
		settings := fmt.Sprint(test, slices.DeleteFunc(r.Settings(),
			func(s string) bool { return strings.HasPrefix(s, "tap_flags") }))
		base := bases[settings]
		if base == nil {
			bases[settings] = r
			if base = bases[test]; base == nil {
				bases[test] = r
				continue
			}
		}
		values := paired(base, r)
		if len(values) == 0 {
			continue
		}
		own, other := difference(base, r)
		ratios = append(ratios, Ratio{Test: common(rows, base, r), Base: own, Other: other,
			Interval: medianInterval(values), Metric: metricOf(r)})
	}
	return ratios
}

// common names what a pair has in common: the test, and of what varies among all rows the model and the settings.
func common(rows []Row, a, b *Row) string {
	name := testName(a)
	if slices.ContainsFunc(rows, func(r Row) bool { return r.ModelFile != a.ModelFile }) {
		name = filepath.Base(a.ModelFile) + " " + name
	}
	for k, setting := range a.Settings() {
		varies := slices.ContainsFunc(rows, func(r Row) bool { return r.Settings()[k] != setting })
		if varies && setting == b.Settings()[k] && strings.Contains(setting, " ") &&
			!strings.HasPrefix(setting, "tap_flags") {
			name += ", " + setting
		}
	}
	return name
}

// testName is the test and, of a text, its name.
func testName(r *Row) string {
	if r.PromptName == nil {
		return r.Test()
	}
	return r.Test() + " " + *r.PromptName
}

// metricOf names what a row measures: decode where only tokens are generated, prefill where there is only a prompt,
// else both.
func metricOf(r *Row) string {
	switch {
	case r.Gen == 0:
		return "prefill"
	case r.Prompt == 0:
		return "decode"
	}
	return "both"
}

// paired lists other / base, one per round that both have.
func paired(base, other *Row) []float64 {
	a, b := byRound(base), byRound(other)
	var rounds []int
	for round := range a {
		if b[round] != nil {
			rounds = append(rounds, round)
		}
	}
	slices.Sort(rounds)
	var values []float64
	for _, round := range rounds {
		values = append(values, median(b[round])/median(a[round]))
	}
	return values
}

func byRound(r *Row) map[int][]float64 {
	rounds := map[int][]float64{}
	for i, round := range r.Rounds[:min(len(r.Rounds), len(r.SamplesTS))] {
		rounds[round] = append(rounds[round], r.SamplesTS[i])
	}
	return rounds
}

// difference names two rows of one test by the settings that they do not share.
func difference(a, b *Row) (nameA, nameB string) {
	var ofA, ofB []string
	for _, c := range []struct {
		name string
		of   func(*Row) string
	}{
		{"tap", func(r *Row) string { return textOrUnknown(r.Tap) }},
		{"threads", func(r *Row) string { return fmt.Sprint(r.Threads) }},
		{"np", func(r *Row) string { return strconv.Itoa(r.sequences()) }},
		{"ngl", func(r *Row) string { return fmt.Sprint(r.GPULayers) }},
		{"b", func(r *Row) string { return fmt.Sprint(r.Batch) }},
		{"ub", func(r *Row) string { return fmt.Sprint(r.MicroBatch) }},
		{"fa", func(r *Row) string { return fmt.Sprint(r.FlashAttn) }},
		{"ctk", func(r *Row) string { return r.TypeK }},
		{"ctv", func(r *Row) string { return r.TypeV }},
	} {
		if c.of(a) != c.of(b) {
			ofA, ofB = append(ofA, c.name+" "+c.of(a)), append(ofB, c.name+" "+c.of(b))
		}
	}
	if len(ofA) == 0 {
		return "first", "again"
	}
	return strings.Join(ofA, ", "), strings.Join(ofB, ", ")
}

// resolved says in words whether the interval shows a difference.
func (i Interval) resolved() string {
	switch {
	case i.Pairs < fewestPairs:
		return fmt.Sprintf("not resolved: fewer than %d rounds", fewestPairs)
	case i.AtLeast(1) == Passed && i.Low > 1:
		return "faster"
	case i.AtLeast(1) == Failed:
		return "slower"
	}
	return "not resolved"
}

// WriteRatios writes ratios as a table of Markdown.
func WriteRatios(out io.Writer, ratios []Ratio) {
	if len(ratios) == 0 {
		return
	}
	fmt.Fprintf(out, "\n| %-32s | %-40s | %-36s | %-12s |\n| %s | %s | %s | %s |\n", "test", "configuration / base",
		"ratio of t/s, median [95 %]", "difference",
		strings.Repeat("-", 32), strings.Repeat("-", 40), strings.Repeat("-", 36), strings.Repeat("-", 12))
	for _, r := range ratios {
		fmt.Fprintf(out, "| %-32s | %-40s | %-36s | %-12s |\n", r.Test, r.Other+" / "+r.Base, r.Interval,
			r.Interval.resolved())
	}
}
