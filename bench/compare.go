package bench

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/config"
)

// significant is the p value below which a change counts.
const significant = 0.05

// Change is one figure of one test in two files.
type Change struct {
	Test     string
	Metric   string // decode, prefill and both are tokens per second, ttft and itl milliseconds
	Old, New Interval
	Ratio    Interval // new / old
	P        float64  // of no change, by the rank-sum test
	old, new []float64
}

// Compare lists the changes of every test that both files hold; alone names the tests of only one. Rows of the same
// test and settings are taken together.
func Compare(old, new []Row) (changes []Change, alone []string) {
	a, b := gather(old), gather(new)
	label := labels(append(slices.Clone(a), b...))
	for i := range a {
		k := slices.IndexFunc(b, func(s samples) bool { return s.key == a[i].key })
		if k < 0 {
			alone = append(alone, label(&a[i])+" (only in the first)")
			continue
		}
		for m := range a[i].metrics {
			if x, y := a[i].metrics[m], b[k].metrics[m]; len(x.values) > 0 && len(y.values) > 0 {
				changes = append(changes, Change{
					Test: label(&a[i]), Metric: x.name, Old: medianInterval(x.values), New: medianInterval(y.values),
					Ratio: ratioInterval(x.values, y.values), P: mannWhitney(x.values, y.values),
					old: x.values, new: y.values,
				})
			}
		}
	}
	for k := range b {
		if !slices.ContainsFunc(a, func(s samples) bool { return s.key == b[k].key }) {
			alone = append(alone, label(&b[k])+" (only in the second)")
		}
	}
	return changes, alone
}

// samples are all samples of one test with its settings.
type samples struct {
	key     string
	row     *Row
	metrics [3]metric
}

type metric struct {
	name   string
	values []float64
}

// gather takes rows of one test and the same settings together, in their order.
func gather(rows []Row) []samples {
	var all []samples
	for i := range rows {
		r := &rows[i]
		key := fmt.Sprint(sameFlags(r.Settings()), r.ModelType, r.ModelSize, r.Parameters, testName(r))
		k := slices.IndexFunc(all, func(s samples) bool { return s.key == key })
		if k < 0 {
			k = len(all)
			all = append(all, samples{key: key, row: r,
				metrics: [3]metric{{name: metricOf(r)}, {name: "ttft"}, {name: "itl"}}})
		}
		for _, ns := range r.SamplesNS {
			add := &all[k].metrics[0].values
			*add = append(*add, 1e9*float64(r.sequences()*(r.Prompt+r.Gen))/float64(ns))
		}
		for m, values := range [][]int64{r.SamplesFirstNS, r.SamplesTokenNS} {
			add := &all[k].metrics[m+1].values
			for _, ns := range values {
				*add = append(*add, float64(ns)/1e6)
			}
		}
	}
	return all
}

// sameFlags writes the tap's flags among settings in one way, whether a script's keys or a command line gave them.
func sameFlags(settings []string) []string {
	const column, begin = "tap_flags ", "--tap-"
	for k, setting := range settings {
		if text, found := strings.CutPrefix(setting, column+begin); found {
			flags := strings.Split(text, " "+begin)
			for i := range flags {
				flags[i] = config.Spelt(begin + flags[i])
			}
			slices.Sort(flags)
			settings[k] = column + strings.Join(flags, " ")
		}
	}
	return settings
}

// labels names tests by what distinguishes them: their model and the settings that differ between any two.
func labels(all []samples) func(*samples) string {
	models := map[string]bool{}
	var first []string
	if len(all) > 0 {
		first = all[0].row.Settings()
	}
	differ := make([]bool, len(first))
	for i := range all {
		models[all[i].row.ModelType] = true
		for k, s := range all[i].row.Settings() {
			differ[k] = differ[k] || s != first[k]
		}
	}
	return func(s *samples) string {
		name := testName(s.row)
		if len(models) > 1 {
			name = s.row.ModelType + " " + name
		}
		for k, setting := range s.row.Settings() {
			if differ[k] && strings.Contains(setting, " ") { // else it is absent
				name += ", " + setting
			}
		}
		return name
	}
}

// ratioInterval is the ratio of the medians new / old with its 95 % interval, by resampling both with a fixed seed.
func ratioInterval(old, new []float64) Interval {
	random := rand.New(rand.NewPCG(2, uint64(len(old)+len(new))))
	a, b := make([]float64, len(old)), make([]float64, len(new))
	low, high := bootstrap(func() float64 { return median(draw(random, b, new)) / median(draw(random, a, old)) })
	return Interval{Median: median(slices.Clone(new)) / median(slices.Clone(old)), Low: low, High: high,
		Pairs: min(len(old), len(new))}
}

// draw fills dst with values drawn with replacement.
func draw(random *rand.Rand, dst, values []float64) []float64 {
	for i := range dst {
		dst[i] = values[random.IntN(len(values))]
	}
	return dst
}

// significant reports whether there is a change.
func (c *Change) significant() bool { return c.P < significant }

// units are the heads of a comparison's parts, in their order.
var units = []struct {
	head    string
	metrics []string
}{
	{"tokens/s", []string{"decode", "prefill", "both"}},
	{"ms to first token (TTFT)", []string{"ttft"}},
	{"ms between tokens (ITL, median)", []string{"itl"}},
}

// WriteChanges writes changes as benchstat does: one part per unit, ~ where nothing is significant, and the
// geometric mean.
func WriteChanges(out io.Writer, changes []Change) {
	for _, unit := range units {
		var part []Change
		for _, c := range changes {
			if slices.Contains(unit.metrics, c.Metric) {
				part = append(part, c)
			}
		}
		if len(part) == 0 {
			continue
		}
		fmt.Fprintf(out, "%-40s %18s %18s %9s\n", unit.head, "old", "new", "delta")
		logs := 0.0
		for _, c := range part {
			logs += math.Log(c.Ratio.Median)
			delta, n := "~", fmt.Sprint(len(c.old))
			if c.significant() {
				delta = fmt.Sprintf("%+.2f%%", 100*(c.Ratio.Median-1))
			}
			if len(c.old) != len(c.new) {
				n = fmt.Sprintf("%d+%d", len(c.old), len(c.new))
			}
			fmt.Fprintf(out, "%-40s %18s %18s %9s (p=%.3f n=%s)\n", c.Test, figure(c.Old), figure(c.New), delta, c.P, n)
		}
		if len(part) > 1 {
			fmt.Fprintf(out, "%-40s %18s %18s %+8.2f%%\n", "geometric mean", "", "",
				100*(math.Exp(logs/float64(len(part)))-1))
		}
		fmt.Fprintln(out)
	}
}

// figure is a median with the larger side of its interval in percent.
func figure(i Interval) string {
	side := max(i.High-i.Median, i.Median-i.Low) / i.Median
	if i.Pairs < 2 || math.IsNaN(side) {
		return fmt.Sprintf("%.4g", i.Median)
	}
	return fmt.Sprintf("%s ± %.0f%%", strings.TrimSuffix(fmt.Sprintf("%.2f", i.Median), ".00"), 100*side)
}
