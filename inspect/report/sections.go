package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
)

// sections are made in the order in which they appear in the page.
var sections = []func(context.Context, *Run, *tracks) (*section, error){
	tokensSection, componentsSection, rooflineSection, kvSection, requestsSection, promptsSection, expertsSection,
	memorySection,
	activationsSection, hostSection, devicesSection, lossesSection, recordingSection,
}

const resourceFlag = "Not recorded: --tap-resource-level MINIMAL"

// tracks are what a run recorded over time.
type tracks struct{ *export.Tracks }

// seconds converts a time on the monotonic clock into that of the charts.
func (t *tracks) seconds(mono int64) float64 { return float64(mono-t.Begin) / 1e9 }

// unixSeconds does so with a time since 1970; NaN where the run does not say when it began.
func (t *tracks) unixSeconds(unixNS int64) float64 {
	if t.Unix == 0 || unixNS == 0 {
		return math.NaN()
	}
	return t.seconds(unixNS - t.Unix + t.Mono)
}

// timeAxis is that of all charts over the time of the run: 0 is when its first execution after the set-up began, else
// the
// first thing that has a time.
var timeAxis = axis{Name: "time", Unit: "s", Time: true}

// tokensSection is what was computed when.
func tokensSection(_ context.Context, r *Run, over *tracks) (*section, error) {
	s := &section{ID: "tokens", Title: "Tokens over time"}
	if r.Resources == nil {
		s.Missing = resourceFlag
		return s, nil
	}
	rows := [][]string{{"phase", "graphs", "tokens", "tokens/s", "time in graphs", "share"}}
	for i := range r.Resources.Phases {
		p := &r.Resources.Phases[i]
		rows = append(rows, []string{p.Phase, strconv.FormatInt(p.Graphs, 10), strconv.FormatInt(p.Tokens, 10),
			present.Maybe(p.TokensPerS, present.Digits), present.Maybe(p.NS, present.Nanoseconds),
			present.Maybe(p.Share, present.Percent)})
	}
	s.Tables = append(s.Tables, &titled{"Phases", rows})
	if l := r.Resources.Latency; l != nil && l.Count > 0 {
		s.Text = append(s.Text,
			fmt.Sprintf("From one generated token of a sequence to the next: mean %s, at most %s for "+
				"half of them and %s for 99 %%, longest %s.", present.Nanoseconds(l.MeanNS), present.Nanoseconds(l.P50),
				present.Nanoseconds(l.P99), present.Nanoseconds(l.Most)))
	}
	if c := over.spans(); len(c.Series) > 0 {
		s.Charts = append(s.Charts, c)
	}
	latency := &figure{Kind: drawnLines, Title: "Time from one generated token of a sequence to the next", X: timeAxis,
		Y: axis{Name: "time per token", Unit: "s"}}
	for _, lane := range over.Tokens.All {
		of := &curve{Name: lane.Name}
		for _, t := range lane.All {
			if t.After > 0 {
				of.X, of.Y = append(of.X, over.seconds(t.End)), append(of.Y, float64(t.AfterNS)/float64(t.After)/1e9)
				of.Text = append(of.Text, t.Kind)
			}
		}
		if len(of.X) > 0 {
			latency.Series = append(latency.Series, of)
		}
		latency.Note = mergedNote(lane, latency.Note)
	}
	if len(latency.Series) > 0 {
		s.Charts = append(s.Charts, latency)
	}
	return s, nil
}

// mergedNote says that what a lane holds was put together.
func mergedNote(lane *export.Lane, note string) string {
	if lane.Each > 1 && note == "" {
		return fmt.Sprintf("%s: each mark stands for %d that follow each other.", upper(lane.Name), lane.Each)
	}
	return note
}

// Kinds of spans beside the phases.
const (
	generated = "generated token"
	pageFault = "page fault"
)

// spans are executions, tokens and page faults, a row for each context, sequence and thread.
func (t *tracks) spans() *figure {
	drawn := []string{"executions of graphs"}
	if len(t.Tokens.All) > 0 {
		drawn = append(drawn, "generated tokens")
	}
	if len(t.Faults.All) > 0 {
		drawn = append(drawn, "page faults")
	}
	c := &figure{Kind: drawnSpans, Title: upper(strings.Join(drawn, ", ")), X: timeAxis}
	of := map[string]*curve{}
	colours := []string{prefill, decode, generated, pageFault, maintenance}
	add := func(name string, row int, s *export.Stretch, text string) {
		to := of[name]
		if to == nil {
			to = &curve{Name: name, Colour: slices.Index(colours, name) + 1}
			of[name] = to
			c.Series = append(c.Series, to)
		}
		to.X, to.W = append(to.X, t.seconds(s.Start)), append(to.W, float64(s.End-s.Start)/1e9)
		to.Row, to.Text = append(to.Row, row), append(to.Text, text)
	}
	lanes := func(all *export.Lanes, name func(s *export.Stretch) string, text func(s *export.Stretch) string) {
		for _, lane := range all.All {
			for i := range lane.All {
				add(name(&lane.All[i]), len(c.Rows), &lane.All[i], text(&lane.All[i]))
			}
			c.Rows = append(c.Rows, lane.Name)
			c.Note = mergedNote(lane, c.Note)
		}
		if all.Left > 0 {
			c.Note += fmt.Sprintf(" %d more are in rows that are not drawn.", all.Left)
		}
	}
	lanes(&t.Graphs, func(s *export.Stretch) string { return s.Kind }, func(s *export.Stretch) string {
		return present.Plural(s.Tokens, "token")
	})
	kind := func(k string) func(*export.Stretch) string { return func(*export.Stretch) string { return k } }
	text := func(s *export.Stretch) string { return s.Kind }
	lanes(&t.Tokens, kind(generated), text)
	lanes(&t.Faults, kind(pageFault), text)
	if n := t.Setups; n > 0 {
		c.Note = strings.TrimSpace(fmt.Sprintf("%s Not drawn: %s of set-up.", c.Note, present.Plural(n, "execution")))
	}
	return c
}

// counters is a chart of those that have a unit and that want takes; nil where there is none.
func (t *tracks) counters(title, name, unit string, want func(string) (string, bool)) *figure {
	c := &figure{Kind: drawnLines, Title: title, X: timeAxis, Y: axis{Name: name, Unit: unit}}
	for _, k := range t.Counters {
		label, ok := want(k.Name)
		if !ok {
			continue
		}
		s := &curve{Name: label, Y: k.Value, Line: true, Step: unit == "B"}
		inside := 0
		for _, at := range k.At {
			if s.X = append(s.X, t.seconds(at)); t.Begin <= at && at <= t.End {
				inside++
			}
		}
		if inside == 0 && !s.Step {
			continue // the run is shorter than the interval of the recorder
		}
		if k.Every > 1 && c.Note == "" {
			c.Note = fmt.Sprintf("%s: every %dth value is drawn.", upper(label), k.Every)
		}
		c.Series = append(c.Series, s)
	}
	if len(c.Series) == 0 {
		return nil
	}
	// the largest first; what hardly shows is left out
	top := func(s *curve) float64 { return slices.Max(s.Y) }
	slices.SortStableFunc(c.Series, func(a, b *curve) int { return cmp.Compare(top(b), top(a)) })
	if n := len(c.Series) - maxCurves; n > 0 {
		c.Note += fmt.Sprintf(" The %d with the lowest maximum are not drawn.", n)
		c.Series = c.Series[:maxCurves]
	}
	return c
}

// maxCurves are as many as colours can distinguish.
const maxCurves = 8

func layerName(layer int) string {
	if layer < 0 {
		return "no layer"
	}
	return "layer " + strconv.Itoa(layer)
}

// componentsSection is where time went.
func componentsSection(_ context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "components", Title: "Time by layer, component and op"}
	switch {
	case r.Resources == nil:
		s.Missing = resourceFlag
		return s, nil
	case r.Resources.TimedGraphs == 0:
		s.Missing = "No execution was timed inside: " + r.Resources.TimingFlag()
		return s, nil
	}
	all := r.Resources
	s.Text = append(s.Text,
		fmt.Sprintf("Times are of the %s that were timed inside, of %d: %s of %s. Shares are of all "+
			"executions, each phase scaled from those that were timed.", present.Plural(all.TimedGraphs, "execution"),
			all.Graphs,
			present.Nanoseconds(all.TimedNS), present.Nanoseconds(all.GraphNS)))
	heat := &figure{Kind: drawnMatrix, Title: "Time by layer and component", Y: axis{Name: "time", Unit: "s"}}
	for i := range all.Components {
		heat.Columns = append(heat.Columns, all.Components[i].Component)
	}
	shades := &curve{Name: "time"}
	for i := range all.Layers {
		heat.Rows = append(heat.Rows, layerName(all.Layers[i].Layer))
		for _, c := range heat.Columns {
			v := math.NaN()
			if t, ok := all.Layers[i].ByComponent[c]; ok {
				v = float64(t) / 1e9
			}
			shades.Y = append(shades.Y, v)
		}
	}
	heat.Series = []*curve{shades}
	if len(heat.Columns) > 0 && len(heat.Rows) > 0 {
		s.Charts = append(s.Charts, heat)
	}
	if c := layersEnergy(all); c != nil {
		s.Charts = append(s.Charts, c)
	}
	components := &figure{Kind: drawnBars, Title: "Time by component and phase", X: axis{Name: "time", Unit: "s"},
		Rows: heat.Columns}
	for i := range all.Phases {
		of := &curve{Name: all.Phases[i].Phase}
		known := false
		for k := range all.Components {
			t, ok := all.Components[k].ByPhase[of.Name]
			known = known || ok
			of.Y = append(of.Y, float64(t)/1e9)
		}
		if known {
			components.Series = append(components.Series, of)
		}
	}
	if len(components.Series) > 0 {
		s.Charts = append(s.Charts, components)
	}
	ops := &figure{Kind: drawnBars, Title: "Time by op", X: axis{Name: "time", Unit: "s"}}
	of := &curve{Name: "time"}
	for i := range all.Ops {
		if all.Ops[i].NS != nil && all.Ops[i].Op != resources.SeveralOps && len(ops.Rows) < maxBars {
			ops.Rows, of.Y = append(ops.Rows, all.Ops[i].Op), append(of.Y, float64(*all.Ops[i].NS)/1e9)
		}
	}
	if n := len(all.Ops); n > maxBars {
		ops.Note = fmt.Sprintf("The first %d of %d ops.", maxBars, n)
	}
	if len(ops.Rows) == 0 {
		s.Text = append(s.Text, "No op was timed by itself: --tap-resource-level VERBOSE.")
	} else {
		ops.Series = []*curve{of}
		s.Charts = append(s.Charts, ops)
	}
	return s, nil
}

// maxBars is how many rows a chart of bars has at most.
const maxBars = 24

// rooflineSection sets what components reached against what the machine can do.
func rooflineSection(_ context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "roofline", Title: "Roofline"}
	switch {
	case r.Resources == nil:
		s.Missing = resourceFlag
		return s, nil
	case r.Resources.Roofline == nil:
		s.Missing = "The machine's limits were not measured: llamatap doctor --roofline before the run"
		return s, nil
	case r.Resources.Memory.Elsewhere():
		s.Missing = "A device computed, too, and the limits that were measured are those of the CPU"
		return s, nil
	}
	type key struct{ phase, component string }
	sums := map[key]*roofSum{}
	err := r.Resources.EachRow(resources.ByCell, func(row any) error {
		c := row.(resources.CellRow)
		if c.Phase == resources.PhaseSetup {
			return nil
		}
		k := key{c.Phase, c.Component}
		if sums[k] == nil {
			sums[k] = &roofSum{}
		}
		sums[k].add(&c.Figures)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range r.Resources.Phases {
		if p := &r.Resources.Phases[i]; p.Phase != resources.PhaseSetup {
			whole := &roofSum{}
			whole.add(&p.Figures)
			whole.ns -= float64(p.FailedNS) // these have no work
			sums[key{p.Phase, "whole graphs"}] = whole
		}
	}
	roof := r.Resources.Roofline
	c := &figure{Kind: drawnLines, Title: "Work per byte and speed of each component",
		X: axis{Name: "floating point operations per byte moved", Log: true},
		Y: axis{Name: "GFLOP/s", Log: true}}
	low, high := math.Inf(1), math.Inf(-1)
	by := map[string]*curve{}
	rows := [][]string{{"component", "phase", "FLOP/byte", "GFLOP/s", "GB/s", "of the limit"}}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.component, b.component))
	})
	var without []string
	for _, k := range keys {
		sum := sums[k]
		if sum.isPartial || sum.ns <= 0 || sum.flops <= 0 || sum.bytes <= 0 {
			without = append(without, k.component+" of "+k.phase)
			continue
		}
		of := by[k.phase]
		if of == nil {
			of = &curve{Name: k.phase}
			by[k.phase] = of
			c.Series = append(c.Series, of)
		}
		x, y := sum.flops/sum.bytes, sum.flops/sum.ns
		low, high = min(low, x), max(high, x)
		of.X, of.Y, of.Text = append(of.X, x), append(of.Y, y), append(of.Text, k.component)
		rows = append(rows, []string{k.component, k.phase, present.Digits(x), present.Digits(y),
			present.Digits(sum.bytes / sum.ns), present.Percent(y / min(roof.GFLOPsPerS, roof.GBPerS*x))})
	}
	if len(c.Series) == 0 {
		s.Missing = "No component has a measured time and known bytes: " + r.Resources.TimingFlag()
		return s, nil
	}
	if len(without) > 0 {
		c.Note = "Not drawn, because the time, operations or bytes of a part are not known, or are none: " +
			strings.Join(without, ", ") + "."
	}
	ridge := roof.GFLOPsPerS / roof.GBPerS
	low, high = min(low, ridge/4)/2, max(high, ridge*4)*2
	c.Series = append(c.Series, &curve{Name: "measured limit of this machine", Line: true, X: values{low, ridge, high},
		Y: values{low * roof.GBPerS, roof.GFLOPsPerS, roof.GFLOPsPerS}})
	s.Text = append(s.Text, fmt.Sprintf("The limits were measured by llamatap doctor: %s GFLOP/s, %s. Bytes and "+
		"operations are computed from shapes, times are measured.", present.Digits(roof.GFLOPsPerS),
		present.Rate(roof.GBPerS*1e9)))
	s.Charts = append(s.Charts, c)
	s.Tables = append(s.Tables, &titled{"Components", rows})
	return s, nil
}

// roofSum is the work of a component.
type roofSum struct {
	ns, flops, bytes float64
	isPartial        bool // a figure of some part is not known
}

func (s *roofSum) add(f *resources.Figures) {
	if f.NS == nil || f.FLOPs == nil || f.Read == nil || f.NoFLOPs > 0 || f.NoBytes > 0 || f.Untimed > 0 {
		s.isPartial = true
		return
	}
	s.ns += float64(*f.NS)
	s.flops += float64(*cmp.Or(f.Useful, f.FLOPs))
	s.bytes += float64(*f.Read)
	if f.Written != nil {
		s.bytes += float64(*f.Written)
	}
}
