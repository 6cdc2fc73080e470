package resources

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
)

// The bounds of the text: more rows are in JSON and CSV.
const (
	textTop    = 12
	textTokens = 8
	textOps    = 12
	textLayers = 80
)

// WriteText writes the report for people, at most 100 columns wide.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	phaseTable(&b, r.Phases)
	componentTable(&b, r.Components)
	layerTable(&b, r.Layers)
	opTable(&b, r.Ops)
	topTable(&b, r.Top)
	tokenTable(&b, r.Tokens, r.TokensMore)
	if slices.ContainsFunc(r.Phases, func(p PhaseRow) bool { return p.star() != "" }) {
		b.WriteString(
			"\n* with the padded cells that flash attention is given; the share of the roofline by bytes, too\n")
	}
	if r.sampled() {
		b.WriteString(
			"\ntimes of components, layers and ops are of graphs that were timed inside; shares are scaled to all " +
				"graphs\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sampled reports whether some of the graphs were timed inside and others were not.
func (r *Report) sampled() bool { return r.TimedGraphs > 0 && r.TimedGraphs < r.measured }

// TimingFlag is the flag that times the inside of graphs, of a run in which none was: of one that recorded their parts,
// that of sampling.
func (r *Report) TimingFlag() string {
	if slices.ContainsFunc(r.Levels, func(level string) bool { return level == "DETAILED" || level == "VERBOSE" }) {
		return "--tap-resource-sample 1"
	}
	return "--tap-resource-level DETAILED"
}

// head writes the lines that answer most questions.
func (r *Report) head(b *strings.Builder) {
	line := func(key, format string, args ...any) { fmt.Fprintf(b, "%-10s%s\n", key, fmt.Sprintf(format, args...)) }
	state := map[State]string{
		StateSealed: " (sealed)", StateRunning: " (still running)",
		StateCutOff:  " (NOT SEALED: cut off; not a result)",
		StateDamaged: " (NOT SEALED: manifest.json is damaged; not a result)",
	}
	line("events", "%s%s", r.Path, state[r.State])
	if r.Model != "" {
		line("model", "%s", r.Model)
	}
	events := int64(0)
	for _, count := range r.Events {
		events += count
	}
	line("level", "%s; %s in %s", cmp.Or(strings.Join(r.Levels, ", then "), "unknown"),
		present.Plural(events, "event"), present.Plural(r.Lines, "line"))
	r.timeLines(line)
	if l := r.Latency; l != nil {
		each, tokens := "per token", ""
		if l.Together > 0 {
			each = "per step"
			tokens = fmt.Sprintf(", with %.1f tokens each", float64(l.Count+l.Together)/float64(l.Count))
		}
		line(each, "mean %s, half ≤ %s, 95 %% ≤ %s, 99 %% ≤ %s, slowest %s of %d%s",
			present.Duration(time.Duration(l.MeanNS)), present.Duration(time.Duration(l.P50)),
			present.Duration(time.Duration(l.P95)), present.Duration(time.Duration(l.P99)),
			present.Duration(time.Duration(l.Most)), l.Count, tokens)
	}
	for _, c := range r.Caches {
		line("kv", "%s", cacheText(c))
	}
	if r.Memory.Allocations > 0 {
		line("memory", "%s", memoryText(&r.Memory))
	}
	if text := placementText(r.Placement, r.DeviceChanges); text != "" {
		line("nodes on", "%s", text)
	}
	for _, g := range r.GPUs {
		line("gpu", "%s", gpuText(g))
	}
	for _, z := range r.Zones {
		line("rapl", "%s: %.0f J, mean %.1f W (all processes)", z.Domain, z.EnergyJ, z.MeanPowerW)
	}
	for _, text := range resource.EnergyText(r.Energy) {
		line("energy", "%s", text)
	}
	if f := r.Roofline; f != nil {
		line("roofline", "%s GFLOP/s, %s GB/s are the most that this machine was measured to do",
			present.Digits(f.GFLOPsPerS), present.Digits(f.GBPerS))
	}
	line("losses", "%s", r.lossText())
	if r.GivenBack != "" {
		line("NOT WHOLE", "%s: the figures are of the others", r.GivenBack)
	}
	if r.Account != nil {
		if text := present.Overhead(r.Account); text != "" {
			line("overhead", "%s", text)
		}
	}
	for _, q := range r.Retracted[:min(len(r.Retracted), 3)] {
		line("set-up", "executions %d to %d turned out to be set-up; they are counted as what they seemed to be",
			q.FirstExec, q.LastExec)
	}
	for _, bad := range r.Bad[:min(len(r.Bad), 3)] {
		line("BAD LINE", "%d: %s", bad.Line, bad.Reason)
	}
	if more := r.BadLines - 3; more > 0 {
		line("", "and %d more; --json has the first %d", more, maxBad)
	}
	if r.Unfinished > 0 {
		line("unfinished", " %d bytes of a last line whose end is not there", r.Unfinished)
	}
}

// timeLines are lines on where the time went, and how much of it is attributed.
func (r *Report) timeLines(line func(key, format string, args ...any)) {
	if r.GraphNS == 0 {
		line("time", "not measured, of %s", present.Plural(r.Graphs, "graph"))
		return
	}
	whole := fmt.Sprintf("%s in %s", present.Duration(time.Duration(r.GraphNS)), present.Plural(r.measured, "graph"))
	if more := r.Graphs - r.measured; more > 0 {
		whole += fmt.Sprintf(", not known of %d more", more)
	}
	text := whole
	if r.Coverage == nil {
		text += "; where in them is not known: record with " + r.TimingFlag()
	} else {
		text += fmt.Sprintf("; %s of it is attributed below", percentText(r.Coverage))
		if r.sampled() {
			text = fmt.Sprintf("%s; %d of them (%s) were timed inside, and %s of that is attributed below",
				whole, r.TimedGraphs,
				present.Duration(time.Duration(r.TimedNS)), percentText(r.Coverage))
		}
	}
	if r.LookingNS > 0 {
		text += fmt.Sprintf("; timing it cost %s", percentText(ratio(float64(r.LookingNS), float64(r.GraphNS))))
	}
	line("time", "%s", text)
	attention, mlp := r.component(componentAttention), r.component(componentMLP)
	if attention != nil && mlp != nil && attention.NS != nil && mlp.NS != nil && *mlp.NS > 0 {
		line("attention", "%s (%s) against mlp %s (%s): %.2f to 1", present.Duration(time.Duration(*attention.NS)),
			percentText(attention.Share), present.Duration(time.Duration(*mlp.NS)),
			percentText(mlp.Share), float64(*attention.NS)/float64(*mlp.NS))
	}
}

func (r *Report) component(name string) *Figures {
	i := slices.IndexFunc(r.Components, func(c ComponentRow) bool { return c.Component == name })
	if i < 0 {
		return nil
	}
	return &r.Components[i].Figures
}

func cacheText(c *CacheRow) string {
	text := fmt.Sprintf("%d cells used", c.Used)
	if c.Occupancy != nil {
		text = fmt.Sprintf("%d of %d cells used (%s)", c.Used, c.Cells, percentText(c.Occupancy))
	}
	if c.Partly {
		text = fmt.Sprintf("cells used: not known, kv_cache_operation events are of a part of the run; those that are "+
			"there say %d", c.Used)
	}
	if c.EventsLost > 0 {
		text = fmt.Sprintf("cells used: not known, %d kv_cache_operation events are lost; those that are there say %d",
			c.EventsLost, c.Used)
	}
	text += fmt.Sprintf(", peak %d, %d evicted", c.Peak, c.Evicted)
	if c.KeyBytes != nil && c.ValueBytes != nil {
		text += fmt.Sprintf("; in-use K %s, V %s written, %s", present.Bytes(*c.KeyBytes),
			present.Bytes(*c.ValueBytes), present.Plural(c.Layers, "layer"))
	}
	if c.HitRatio != nil {
		text += fmt.Sprintf("; reused %s", percentText(c.HitRatio))
	}
	if c.Type != keyValue || c.Cache == slidingWindow || c.Ctx != 0 {
		text += fmt.Sprintf(" (%s, context %d)", cmp.Or(c.Cache, c.Type), c.Ctx)
	}
	return text
}

func gpuText(g *GPUUse) string {
	text := fmt.Sprintf("%d %s: %s", g.Index, g.Name, present.Plural(g.Samples, "sample"))
	if g.Utilization != nil {
		text += fmt.Sprintf(", busy %.0f %% of the time", *g.Utilization)
	}
	if g.MemoryUtilization != nil {
		text += fmt.Sprintf(", its memory %.0f %%", *g.MemoryUtilization)
	}
	if g.MemoryPeak != nil {
		text += fmt.Sprintf(", %s in use at most", present.Bytes(*g.MemoryPeak))
	}
	if g.EnergyJ != nil {
		text += fmt.Sprintf(", %.0f J, mean %.0f W", *g.EnergyJ, *g.MeanPowerW)
	}
	return text + " (all processes)"
}

func memoryText(m *MemoryRow) string {
	text, listed := fmt.Sprintf("%s at most", present.Bytes(m.Peak)), uint64(0)
	for i, t := range m.Types {
		sep := ", "
		if i == 0 {
			sep = "; allocated "
		}
		text += fmt.Sprintf("%s%s %s", sep, t.Type, present.Bytes(t.Allocated))
		listed += uint64(t.Allocated)
	}
	if m.Total != nil && m.Total.Allocated > listed {
		text += fmt.Sprintf(", and %s in buffers without an event", present.Bytes(m.Total.Allocated-listed))
	}
	return text
}

// lossText names the largest losses, after those of graphs, which all figures lack.
func (r *Report) lossText() string {
	var parts []string
	losses, counted := slices.Clone(r.Losses), uint64(0)
	isGraph := func(l Loss) bool { return l.Kind == resource.KindGraph.String() }
	slices.SortStableFunc(losses, func(a, b Loss) int {
		switch {
		case isGraph(a) == isGraph(b):
			return 0
		case isGraph(a):
			return -1
		}
		return 1
	})
	for i, l := range losses {
		counted += uint64(l.Count)
		if i < 4 {
			parts = append(parts, fmt.Sprintf("%d %s events: %s", l.Count, l.Kind, l.Cause))
		}
	}
	if more := len(losses) - 4; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d other causes", more))
	}
	if r.Account != nil {
		account := *r.Account
		if e := account.Events; e != nil {
			events, lost := *e, uint64(0)
			for _, n := range e.Lost {
				lost += n
			}
			if lost <= counted {
				events.Lost = nil // they are above, by kind
			} else {
				parts = nil // the log could not hold them all, as on a full disk
			}
			account.Events = &events
		}
		if account.Lossy() {
			parts = append(parts, present.Losses(&account))
		}
	}
	if text := r.stopped.Missing(); text != "" {
		parts = append(parts, text)
	}
	if r.BadLines > 0 {
		parts = append(parts, present.Plural(r.BadLines, "line")+" cannot be read")
	}
	if r.found != "" {
		parts = append(parts, r.found)
	}
	if r.uncounted {
		parts = append(parts,
			"the run was cut off, and what that lost of it was not counted: 'llamatap inspect' has what is known")
	}
	return cmp.Or(strings.Join(parts, "; "), "none")
}

func phaseTable(b *strings.Builder, rows []PhaseRow) {
	t := newGrid("phase", " graphs", " mixed", " timed inside", " tokens", " time", " share", " tokens/s", " FLOP",
		" padded",
		" GFLOP/s", " moved", " GB/s", " of roofline")
	sampled := slices.ContainsFunc(rows, func(p PhaseRow) bool { return p.Timed > 0 }) &&
		slices.ContainsFunc(rows, func(p PhaseRow) bool { return p.Timed < p.Graphs-p.Untimed })
	for _, p := range rows {
		mixed := "-"
		if p.Mixed > 0 {
			mixed = strconv.FormatInt(p.Mixed, 10)
		}
		inside := "-"
		if sampled {
			inside = strconv.FormatInt(p.Timed, 10)
		}
		t.add(p.Phase, strconv.FormatInt(p.Graphs, 10), mixed, inside, strconv.FormatInt(p.Tokens, 10), nsText(p.NS),
			percentText(p.Share), rateText(p.TokensPerS),
			countText(p.Useful), p.padded(), rateText(p.GFLOPsPerS), movedText(&p.Figures), gbText(&p.Figures),
			percentText(p.Roofline))
	}
	t.appendTo(b)
	for _, p := range rows {
		if p.Drafts+p.Rejected > 0 {
			fmt.Fprintf(b, "drafts of %s, not in its tokens: %d computed by the draft model, %d by the model "+
				"and rejected\n", p.Phase, p.Drafts, p.Rejected)
		}
	}
}

func componentTable(b *strings.Builder, rows []ComponentRow) {
	t := newGrid("component", " time", " share", " prefill", " decode", " FLOP", " padded", " GFLOP/s", " moved",
		" GB/s", " of roofline")
	for _, c := range rows {
		by := func(phase string) string {
			if ns, ok := c.ByPhase[phase]; ok {
				return present.Duration(time.Duration(ns))
			}
			return "-"
		}
		t.add(c.Component, nsText(c.NS), percentText(c.Share), by(phasePrefill), by(phaseDecode), countText(c.Useful),
			c.padded(), rateText(c.GFLOPsPerS),
			movedText(&c.Figures), gbText(&c.Figures), percentText(c.Roofline))
	}
	t.appendTo(b)
}

func layerTable(b *strings.Builder, rows []LayerRow) {
	t := newGrid(" layer", " time", " share", " attention", " mlp", " other", " FLOP", " padded", " moved")
	energy := len(rows) > 0 && rows[0].ApportionedJ != nil // of all layers, then
	if energy {
		t = newGrid(" layer", " time", " share", " attention", " mlp", " other", " FLOP", " padded", " moved",
			" energy")
	}
	for _, l := range rows[:min(len(rows), textLayers)] {
		other, timed := int64(0), false
		for component, ns := range l.ByComponent {
			if component != componentAttention && component != componentMLP {
				other, timed = other+ns, true
			}
		}
		of := func(component string) string {
			if ns, ok := l.ByComponent[component]; ok {
				return present.Duration(time.Duration(ns))
			}
			return "-"
		}
		rest := "-"
		if timed {
			rest = present.Duration(time.Duration(other))
		}
		cells := []string{layerName(l.Layer), nsText(l.NS), percentText(l.Share), of(componentAttention),
			of(componentMLP), rest, countText(l.Useful), l.padded(), movedText(&l.Figures)}
		if energy {
			cells = append(cells, fmt.Sprintf("%.4g J", *l.ApportionedJ))
		}
		t.add(cells...)
	}
	t.appendTo(b)
	more(b, len(rows)-textLayers, "layers")
}

// more says that rows were left out.
func more(b *strings.Builder, n int, of string) {
	if n > 0 {
		fmt.Fprintf(b, "… and %d more %s: --json and --format csv have all\n", n, of)
	}
}

func opTable(b *strings.Builder, rows []OpRow) {
	if len(rows) == 0 || len(rows) == 1 && rows[0].Op == SeveralOps {
		return
	}
	t := newGrid("op", " count", " time", " share", " FLOP", " padded", " GFLOP/s", " moved", " GB/s", " of roofline")
	for _, o := range rows[:min(len(rows), textOps)] {
		t.add(o.Op, strconv.FormatInt(o.Events, 10), nsText(o.NS), percentText(o.Share), countText(o.Useful),
			o.padded(), rateText(o.GFLOPsPerS),
			movedText(&o.Figures), gbText(&o.Figures), percentText(o.Roofline))
	}
	t.appendTo(b)
	more(b, len(rows)-textOps, "ops")
}

func topTable(b *strings.Builder, rows []TopRow) {
	if len(rows) == 0 {
		return
	}
	t := newGrid("most time", "op", " count", " time", " share", " GFLOP/s", " GB/s", " of roofline")
	for _, o := range rows[:min(len(rows), textTop)] {
		t.add(cmp.Or(o.Name, "(unnamed)"), o.Op, strconv.FormatInt(o.Events, 10), nsText(o.NS), percentText(o.Share),
			rateText(o.GFLOPsPerS),
			gbText(&o.Figures), percentText(o.Roofline))
	}
	t.appendTo(b)
}

// tokenTable shows the tokens that came longest after the generated one before them, with the graph that produced each;
// leftOut are further tokens that the report has no rows of.
func tokenTable(b *strings.Builder, tokenRows []*TokenRow, leftOut int64) {
	rows := slices.DeleteFunc(slices.Clone(tokenRows), func(t *TokenRow) bool { return t.LatencyNS == nil || t.First })
	slices.SortStableFunc(rows, func(a, b *TokenRow) int { return cmp.Compare(*b.LatencyNS, *a.LatencyNS) })
	t := newGrid(" slowest token", "text", " pos", " since last", " in graph", " attention", " mlp")
	for _, row := range rows[:min(len(rows), textTokens)] {
		text := ""
		if row.Text != nil {
			text = strconv.Quote(*row.Text)
			if runes := []rune(text); len(runes) > 20 {
				text = string(runes[:19]) + "…"
			}
		}
		t.add(strconv.FormatInt(row.Index, 10), text, strconv.Itoa(int(row.Pos)), nsText(row.LatencyNS),
			nsText(row.GraphNS), nsText(row.AttentionNS),
			nsText(row.MLPNS))
	}
	t.appendTo(b)
	if len(rows) > textTokens {
		fmt.Fprintf(b, "… of %d tokens: --by token has them in order\n", int64(len(rows))+leftOut)
	}
}
