package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/config"
)

// Levels measures what each level of the tap costs each model: its absence against llama-bench and against the
// memory, then each level against its absence, while a prompt is read and while tokens are generated.
type Levels struct {
	*Stage
	Models      []NamedModel
	Prompt, Gen int     // tokens
	Triad       float64 // bytes per second; 0: not measured
	Time        time.Duration
}

// eventsPerOp is the level at which every operation is timed.
const eventsPerOp = "events VERBOSE"

// levelSettings are the tap configurations, the absence first. The second has the hook of graphs and nothing more.
func levelSettings() []TapSetting {
	all := []TapSetting{
		{Name: "off"},
		{Name: "hook only", Flags: []string{"--tap-tensors=l_out*", "--tap-start=off"}},
		{Name: "l_out", Flags: []string{"--tap-tensors=l_out*"}},
		{Name: "attention_only", Flags: []string{"--tap-granularity=attention_only"}},
		{Name: "all nodes", Flags: []string{"--tap-granularity=full_tensor"}},
		{Name: "kv", Flags: []string{"--tap-kv"}},
		{Name: "regions", Flags: []string{"--tap-regions"}},
		{Name: ledgerRows, Flags: []string{"--tap-ledger=rows"}},
		{Name: ledgerWindows, Flags: []string{"--tap-ledger=windows"}},
		{Name: "faults sampled", Flags: []string{"--tap-samples=faults"}},
		{Name: "pages sampled", Flags: []string{"--tap-samples=pages"}},
		{Name: "events MINIMAL", Flags: []string{"--tap-resource-level=MINIMAL"}},
		{Name: "events DETAILED", Flags: []string{"--tap-resource-level=DETAILED"}},
		{Name: eventsPerOp, Flags: []string{"--tap-resource-level=VERBOSE"}},
	}
	for _, p := range config.Presets() {
		all = append(all, TapSetting{Name: "preset " + p.Name, Flags: []string{"--tap-preset=" + p.Name}})
	}
	return all
}

// Run measures model by model, each for an equal share of the time that is left, and fills the table.
func (l Levels) Run(ctx context.Context) error {
	end := time.Now().Add(l.Time)
	for i, model := range l.Models {
		until := time.Now().Add(time.Until(end) / time.Duration(len(l.Models)-i))
		if err := l.model(ctx, model, until); err != nil {
			return err
		}
	}
	return nil
}

func (l Levels) model(ctx context.Context, model NamedModel, until time.Time) error {
	bytes, err := weightsRead(model.Path)
	if err != nil {
		return err
	}
	var items []Item
	settings := levelSettings()
	for _, setting := range settings {
		items = append(items, Item{Spec: l.spec(model.Path, l.Prompt, l.Gen), Tap: setting})
	}
	if l.LlamaBench != "" {
		items = append(items, Item{Spec: l.spec(model.Path, l.Prompt, l.Gen), Tap: TapSetting{Name: stockName}})
	}
	visits, err := l.rounds(ctx, "levels, "+model.Name, items, until)
	if err != nil {
		return err
	}
	for _, phase := range []struct {
		name   string
		tokens int
		ns     func(*Visit) float64
	}{{fmt.Sprintf("%s pp%d", model.Name, l.Prompt), l.Prompt, prefillNS}, {fmt.Sprintf("%s tg%d", model.Name, l.Gen), l.Gen, decodeNS}} {
		if phase.tokens == 0 {
			continue
		}
		rates := make([][]float64, len(items))
		for i := range items {
			rates[i] = each(visits[i], func(v *Visit) float64 { return float64(phase.tokens) * 1e9 / phase.ns(v) })
		}
		if l.LlamaBench != "" {
			l.add(phase.name+", off", "1", rates[0], rates[len(settings)], stockName, Interval.same)
		}
		if phase.tokens == l.Gen && l.Triad > 0 {
			l.efficiency(phase.name, bytes, rates[0])
		}
		for i := 1; i < len(settings); i++ {
			l.add(phase.name+", "+settings[i].Name, "", rates[i], rates[0], "off", Interval.difference)
			if phase.tokens == l.Gen && settings[i].Name == eventsPerOp {
				l.perOp(phase.name, rates[i], rates[0], visits[i])
			}
		}
	}
	for i := 1; i < len(settings); i++ {
		l.own(model.Name, settings[i].Name, visits[i])
	}
	return nil
}

// add adds a line of rates over others of the same rounds.
func (l Levels) add(name, gate string, rates, base []float64, limit string, judge func(Interval) Verdict) {
	ratio := MedianInterval(quotients(rates, base))
	l.Table.Add(Line{Section: "levels", Name: name, Value: MedianInterval(rates).Median, Unit: "tokens/s", Limit: limit, Ratio: &ratio, Gate: gate,
		Verdict: judge(ratio)})
}

// perOp adds what timing every operation costs while tokens are generated: what it adds to a token, by the nodes
// that ggml asks for.
func (l Levels) perOp(name string, rates, off []float64, visits []Visit) {
	var cost []float64
	for i := range visits {
		if r := visits[i].Recorded; r != nil && r.NodesAsked > 0 && r.Executions > 0 {
			cost = append(cost, (1/rates[i]-1/off[i])*1e9*float64(r.Executions)/float64(r.NodesAsked))
		}
	}
	if len(cost) > 0 {
		l.Table.Add(Line{Section: "levels", Name: name + ", " + eventsPerOp + ": added per node of a graph", Value: MedianInterval(cost).Median, Unit: "ns"})
	}
}

// efficiency adds how much of the memory's bandwidth the weights take while tokens are generated.
func (l Levels) efficiency(name string, bytes int64, rates []float64) {
	var used []float64
	for _, r := range rates {
		used = append(used, r*float64(bytes))
	}
	value := MedianInterval(used).Median / 1e9
	for i := range used {
		used[i] /= l.Triad
	}
	l.Table.Add(Line{Section: "levels", Name: name + ", off: weights that are read", Value: value, Unit: "GB/s", Limit: "triad", Ratio: at(MedianInterval(used))})
}

// own adds what the tap measured of itself.
func (l Levels) own(model, setting string, visits []Visit) {
	var share, each []float64
	for _, v := range visits {
		if r := v.Recorded; r != nil && r.OwnNS != nil && r.GraphNS > 0 && r.Tokens > 0 {
			share = append(share, float64(*r.OwnNS)/float64(r.GraphNS))
			each = append(each, float64(*r.OwnNS)/float64(r.Tokens)/1e3)
		}
	}
	if len(share) > 0 {
		l.Table.Add(Line{Section: "levels", Name: model + ", " + setting + ": own time of the tap", Value: median(each), Unit: "µs/token",
			Limit: "time in graphs", Ratio: at(MedianInterval(share))})
	}
}

// same judges a ratio of two things that are the same.
func (i Interval) same() Verdict { return i.holds(1) }

// difference is what the interval tells of a difference, in words.
func (i Interval) difference() Verdict { return Verdict(i.Resolved()) }
