package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/bench/measure"
	"github.com/llamatap/llamatap/models"
)

// TestTable prints a ratio, a figure in words and a gate, counts what failed, and tells the same in JSON.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out)
	table.Section("a section")
	table.Add(Line{Section: "s", Name: "a", Value: 2, Unit: "GB/s", Limit: "triad", Ratio: &Interval{0.5, 0.4, 0.6, 8}})
	table.Add(Line{Section: "s", Name: "b", Figure: "in words", Gate: "1", Verdict: Failed})
	table.Note("s", "left out")
	for _, want := range []string{"a section\n", "2 GB/s", "0.500 [0.400, 0.600] of triad, 8 pairs", "in words", "failed\n", "left out\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if table.Failed() != 1 {
		t.Errorf("%d failed", table.Failed())
	}
	out.Reset()
	var read struct {
		Environment Environment
		Lines       []Line
	}
	if err := table.WriteJSON(&out, &Environment{CPU: "c"}); err != nil || json.Unmarshal(out.Bytes(), &read) != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(read.Lines) != 3 || read.Environment.CPU != "c" || *read.Lines[0].Ratio != *table.Lines[0].Ratio || read.Lines[1].Verdict != Failed {
		t.Errorf("%+v", read)
	}
}

func TestExponent(t *testing.T) {
	x := []float64{1, 2, 4, 8}
	for want, y := range map[float64][]float64{0: {3, 3, 3, 3}, 1: {3, 6, 12, 24}, 2: {1, 4, 16, 64}, -0.5: {1, 1 / math.Sqrt2, 0.5, 0.5 / math.Sqrt2}} {
		if got, ok := exponent(x, y); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("%v, %v, want %v", got, ok, want)
		}
	}
	for name, c := range map[string][2][]float64{"one x": {{2, 2}, {1, 2}}, "zero": {{1, 2}, {0, 1}}, "negative": {{1, 2}, {1, -1}}, "none": {nil, nil}} {
		if got, ok := exponent(c[0], c[1]); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// scattered are rounds of a·x^b with a relative scatter.
func scattered(random *rand.Rand, x []float64, b, scatter float64, rounds int) [][]float64 {
	all := make([][]float64, len(x))
	for i := range x {
		for range rounds {
			all[i] = append(all[i], 10*math.Pow(x[i], b)*(1+scatter*random.NormFloat64()))
		}
	}
	return all
}

// TestGrowthIntervals plants exponents: the interval holds the planted one about as often as it says, and noise
// resolves nothing.
func TestGrowthIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	x := []float64{1, 2, 4, 8, 16}
	held := 0
	const tries = 20
	for i := range tries {
		planted := float64(i%3) / 2
		of, resolved := growth(x, scattered(random, x, planted, 0.05, 10))
		if !resolved {
			t.Errorf("exponent %v is not resolved: %+v", planted, of)
		}
		if of.Low <= planted && planted <= of.High {
			held++
		}
	}
	if held < tries*8/10 {
		t.Errorf("%d of %d intervals hold what was planted", held, tries)
	}
	if of, resolved := growth(x, scattered(random, x, 0, 3, 10)); resolved {
		t.Errorf("noise gives %+v", of)
	}
	if of, resolved := growth(x, scattered(random, x, 1, 0.01, 5)); resolved || math.Abs(of.Median-1) > 0.1 {
		t.Errorf("five rounds give %+v, %v", of, resolved)
	}
	if _, resolved := growth(x, make([][]float64, len(x))); resolved {
		t.Error("nothing gives something")
	}
	for want, of := range map[Verdict]Interval{"shrinks": {High: -0.1, Low: -1}, "does not grow": {Low: -0.1, High: 0.1}, "grows in proportion": {Low: 0.9, High: 1.1},
		"grows more slowly than in proportion": {Low: 0.2, High: 0.4}, "grows faster than in proportion": {Low: 1.2, High: 1.4}} {
		if got := kindOf(of); got != want {
			t.Errorf("%+v: %s", of, got)
		}
	}
}

// planted is a machine: each generated token takes 100 µs and with a tap so much more per layer that is recorded,
// within 1 %.
func planted(more float64) func(context.Context, *Item, uint64, string) (Visit, error) {
	random := rand.New(rand.NewPCG(3, 3))
	return func(_ context.Context, item *Item, _ uint64, _ string) (Visit, error) {
		each, v := 100e3, Visit{}
		if len(item.Tap.Flags) > 0 {
			layers := float64(item.Spec.Seed) // a size, put there by the test
			each += more * layers
			own := int64(more * layers * 10)
			v.Recorded = &Recorded{GraphNS: 1e6, OwnNS: &own, Tokens: 10}
		}
		each *= 1 + 0.01*random.NormFloat64()
		r := measure.Repetition{FirstNS: int64(each) * int64(item.Spec.Prompt)}
		for range item.Spec.Gen {
			r.TokenNS = append(r.TokenNS, int64(each))
		}
		r.NS = r.FirstNS + int64(each)*int64(item.Spec.Gen)
		v.Repetitions = []measure.Repetition{r}
		return v, nil
	}
}

func lineOf(t *testing.T, table *Table, name string) Line {
	t.Helper()
	for _, l := range table.Lines {
		if strings.Contains(l.Name, name) {
			return l
		}
	}
	t.Fatalf("no line %q in %+v", name, table.Lines)
	return Line{}
}

// TestLevels has a machine on which every level costs 10 µs of 100, and llama-bench takes what the absence takes.
func TestLevels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, models.Default, 0o600); err != nil {
		t.Fatal(err)
	}
	look := planted(10e3)
	s := &Stage{Threads: 1, Rounds: 10, LlamaBench: "somewhere", Table: NewTable(nil), Progress: func(string) {}}
	s.visit = func(ctx context.Context, item *Item, seed uint64, dir string) (Visit, error) {
		one := *item
		one.Spec.Seed = 1
		return look(ctx, &one, seed, dir)
	}
	l := Levels{Stage: s, Models: []NamedModel{{"6m", path}}, Prompt: 8, Gen: 4, Triad: 100e9, Time: time.Hour}
	if err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lineOf(t, s.Table, "tg4, off"); got.Verdict != Passed || got.Limit != stockName || math.Abs(got.Value-10_000) > 300 {
		t.Errorf("against llama-bench: %+v", got)
	}
	for _, name := range []string{"pp8, l_out", "tg4, hook only", "tg4, preset max"} {
		if got := lineOf(t, s.Table, name); got.Verdict != "slower" || math.Abs(got.Ratio.Median-100./110) > 0.02 {
			t.Errorf("%s: %+v, %+v", name, got, got.Ratio)
		}
	}
	weights, err := weightsRead(path)
	if err != nil || weights < 5e6 || weights >= int64(len(models.Default)) {
		t.Errorf("%d bytes of weights, %v", weights, err)
	}
	if got := lineOf(t, s.Table, "weights"); math.Abs(got.Ratio.Median/(float64(weights)*10_000/100e9)-1) > 0.05 {
		t.Errorf("%+v", got)
	}
	if got := lineOf(t, s.Table, "l_out: own time"); got.Value != 10 || got.Ratio.Median != 0.1 {
		t.Errorf("%+v, %+v", got, got.Ratio)
	}
	if len(s.Rows) != len(levelSettings()) { // without llama-bench's
		t.Errorf("%d rows", len(s.Rows))
	}
}

// TestGrowth has a machine on which what the tap costs grows in proportion to the layers that it records.
func TestGrowth(t *testing.T) {
	look := planted(5e3)
	s := &Stage{Threads: 1, Rounds: 12, Table: NewTable(nil), Progress: func(string) {}}
	s.visit = func(ctx context.Context, item *Item, seed uint64, dir string) (Visit, error) {
		one := *item
		one.Spec.Seed = map[string]uint64{"8 layers": 8, "16 layers": 16, "32 layers": 32}[item.Tap.Name]
		return look(ctx, &one, seed, dir)
	}
	g := Growth{Stage: s, Series: []Series{s.Captured(NamedModel{"6m", "x"}, 16, 8, 16, 32)}, Time: time.Hour}
	if err := g.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Verdict{"own time": "grows in proportion", "adds": "grows in proportion", "without": "does not grow"} {
		if got := lineOf(t, s.Table, name); got.Verdict != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := lineOf(t, s.Table, "tensors 32"); got.Verdict != "slower" || math.Abs(got.Ratio.Median-100./260) > 0.02 {
		t.Errorf("%+v", got)
	}
}

// TestUntil ends a plan when another round would end too late, but not before the first.
func TestUntil(t *testing.T) {
	s := &Stage{Threads: 1, Rounds: 1000, Table: NewTable(nil), Progress: func(string) {}, visit: planted(0)}
	visits, err := s.rounds(t.Context(), "x", []Item{{Spec: s.spec("x", 0, 1), Tap: TapSetting{Name: "off"}}}, time.Now().Add(-time.Hour))
	if err != nil || len(visits) != 1 || len(visits[0]) != 1 {
		t.Errorf("%d visits, %v", len(visits[0]), err)
	}
	for want, c := range map[bool]Conductor{true: {Until: time.Now().Add(time.Second)}, false: {Until: time.Now().Add(time.Hour)}} {
		if got := c.late(time.Now().Add(-10*time.Second), 2); got != want {
			t.Errorf("two rounds in 10 s, until %v: %v", c.Until, got)
		}
	}
}

// TestMachineLimits measures this machine for a moment.
func TestMachineLimits(t *testing.T) {
	table := NewTable(nil)
	triad, err := MachineLimits{Dir: t.TempDir(), Time: time.Millisecond, MemoryBytes: 24 << 20, DiskBytes: 1 << 20, Table: table, Progress: func(string) {}}.Run(t.Context())
	if err != nil || triad <= 0 || lineOf(t, table, "copy").Ratio == nil || lineOf(t, table, "through the page cache").Value <= 0 {
		t.Errorf("%g, %v, %+v", triad, err, table.Lines)
	}
}

// TestLibraries uses each on zeros: codecs make less of them.
func TestLibraries(t *testing.T) {
	all, err := libraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		rate, made := pass(l.use, [][]byte{make([]byte, 1<<16), make([]byte, 1<<12)})
		if rate <= 0 || strings.HasPrefix(l.name, "copy") != (made == 1) || made > 1 {
			t.Errorf("%s: %g bytes/s, %g", l.name, rate, made)
		}
	}
}
