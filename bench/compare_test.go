package bench

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// sampled is a row of tg64 whose rate in tokens/s scatters by 3 % around a centre.
func sampled(centre float64, n int, random *rand.Rand) Row {
	r := NewRow()
	r.ModelType, r.Gen = "llama 1B", 64
	for range n {
		rate := centre * (1 + 0.03*random.NormFloat64())
		ns := int64(64e9 / rate)
		r.SamplesNS = append(r.SamplesNS, ns)
		r.SamplesTokenNS = append(r.SamplesTokenNS, ns/64)
		r.Rounds = append(r.Rounds, len(r.Rounds))
	}
	r.Summarise()
	return r
}

// TestPlantedSlowdown plants 10 % into samples that scatter by 3 %: it is found every time; where nothing is
// planted, something is found about as often as the significance says.
func TestPlantedSlowdown(t *testing.T) {
	testenv.Once(t)
	random := rand.New(rand.NewPCG(11, 4))
	bounds := []Bound{{"decode", true, 0.97}}
	const rounds = 50
	var planted, blamed, chance, chanceBlamed int
	for range rounds {
		old := []Row{sampled(100, 10, random)}
		slow, _ := Compare(old, []Row{sampled(90, 10, random)})
		same, alone := Compare(old, []Row{sampled(100, 10, random)})
		if len(slow) != 2 || len(same) != 2 || len(alone) != 0 {
			t.Fatalf("%+v, %+v, %q", slow, same, alone)
		}
		if slow[0].significant() && slow[0].Ratio.Median < 1 {
			planted++
		}
		if same[0].significant() {
			chance++
		}
		if Blame(bounds, JudgeChanges(bounds, slow)) != nil {
			blamed++
		}
		if Blame(bounds, JudgeChanges(bounds, same)) != nil {
			chanceBlamed++
		}
	}
	if planted < rounds*98/100 || chance > rounds*12/100 {
		t.Errorf("a planted slow-down was found %d times, a false one %d times of %d", planted, chance, rounds)
	}
	if blamed < rounds*90/100 || chanceBlamed > 1 {
		t.Errorf("%v failed %d times on the planted one, %d times on none", bounds, blamed, chanceBlamed)
	}
}

// TestRatios has the same planted difference between two configurations of one run.
func TestRatios(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 4))
	off, same, slow := sampled(100, 12, random), sampled(100, 12, random), sampled(88, 12, random)
	off.Tap, same.Tap, slow.Tap = new("off"), new("same"), new("slow")
	other := sampled(50, 3, random)
	other.Gen, other.Prompt = 0, 64
	ratios := Ratios([]Row{off, same, other, slow})
	if len(ratios) != 2 || ratios[0].Interval.resolved() != "not resolved" ||
		ratios[1].Interval.resolved() != "slower" {
		t.Fatalf("%+v", ratios)
	}
	if ratios[1].Other != "tap slow" || ratios[1].Base != "tap off" || ratios[1].Metric != "decode" ||
		ratios[1].Interval.Pairs != 12 {
		t.Errorf("%+v", ratios[1])
	}
	bounds, err := ParseBounds("decode<0.97")
	if err != nil {
		t.Fatal(err)
	}
	judged := JudgeRatios(bounds, ratios)
	if len(judged) != 2 || judged[0].Verdict == Failed || judged[1].Verdict != Failed || Blame(bounds, judged) == nil {
		t.Errorf("%+v", judged)
	}
	if Blame(bounds, JudgeRatios(bounds, nil)) == nil {
		t.Error("a bound that nothing is held against passes")
	}
	var out bytes.Buffer
	if WriteRatios(&out, ratios); strings.Count(out.String(), "\n") != 5 ||
		!strings.Contains(out.String(), "| slower ") {
		t.Errorf("%s", out.String())
	}
}

// TestCompareFlags: a recording that a script describes is the one that flags describe.
func TestCompareFlags(t *testing.T) {
	var script, flags Row
	script.TapFlags, flags.TapFlags = new("--tap-layers=0 --tap-tensors=a b"), new("--tap-tensor=a b --tap-layer=0")
	if a, b := sameFlags(script.Settings()), sameFlags(flags.Settings()); !slices.Equal(a, b) ||
		!slices.Contains(a, "tap_flags --tap-layer=0 --tap-tensor=a b") {
		t.Errorf("%q and %q", a, b)
	}
}

// TestRatioBases compares a recording with the same settings without it, and settings with the first ones.
func TestRatioBases(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	var rows []Row
	for _, threads := range []int{1, 2} {
		off, on := sampled(100, 6, random), sampled(100, 6, random)
		off.Threads, on.Threads, off.Tap, on.Tap, on.TapFlags = threads, threads, new("off"), new("on"),
			new("--tap-layers=0")
		rows = append(rows, off, on)
	}
	var got []string
	for _, r := range Ratios(rows) {
		got = append(got, r.Test+": "+r.Other+" / "+r.Base)
	}
	if want := []string{"tg64, n_threads 1: tap on / tap off", "tg64: threads 2 / threads 1",
		"tg64, n_threads 2: tap on / tap off"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRatioPairs pairs rounds, not the order of samples, and takes a round's median.
func TestRatioPairs(t *testing.T) {
	a, b := Row{Gen: 1, SamplesTS: []float64{1, 2, 3}, Rounds: []int{0, 1, 1}},
		Row{Gen: 1, SamplesTS: []float64{5, 4}, Rounds: []int{1, 2}}
	if got := paired(&a, &b); !slices.Equal(got, []float64{2}) {
		t.Errorf("%v, want 5 / median of 2 and 3", got)
	}
}

// TestCompareRows takes rows of one test together and finds partners by settings.
func TestCompareRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	row := func(threads int) Row { r := sampled(100, 3, random); r.Threads = threads; return r }
	changes, alone := Compare([]Row{row(1), row(2), row(1)}, []Row{row(1), row(4)})
	if len(changes) != 2 || changes[0].Test != "tg64, n_threads 1" || len(changes[0].old) != 6 ||
		changes[1].Metric != "itl" {
		t.Errorf("%+v", changes)
	}
	if want := []string{"tg64, n_threads 2 (only in the first)",
		"tg64, n_threads 4 (only in the second)"}; !slices.Equal(alone, want) {
		t.Errorf("%q, want %q", alone, want)
	}
	several := sampled(100, 3, random)
	several.Sequences = new(4)
	several.Summarise()
	if of, _ := Compare([]Row{several}, []Row{several}); of[0].Old.Median != medianInterval(several.SamplesTS).Median {
		t.Errorf("tokens/s of four sequences: %v, the row has %v", of[0].Old, several.SamplesTS)
	}
	if changes, alone := Compare(nil, nil); changes != nil || alone != nil {
		t.Errorf("of nothing: %v, %q", changes, alone)
	}
	var out bytes.Buffer
	WriteChanges(&out, changes)
	if text := out.String(); !strings.Contains(text, "tokens/s") || !strings.Contains(text, " ~ (p=") ||
		!strings.Contains(text, "n=6+3") || !strings.Contains(text, "ITL") {
		t.Errorf("%s", text)
	}
}

func TestParseBounds(t *testing.T) {
	got, err := ParseBounds("decode<0.97, ttft > 1.1")
	if err != nil || !slices.Equal(got, []Bound{{"decode", true, 0.97}, {"ttft", false, 1.1}}) ||
		got[1].String() != "ttft>1.1" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "decode", "decode<", "decode<0", "speed<1", "decode<=1", "decode<1.2.3"} {
		if got, err := ParseBounds(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
