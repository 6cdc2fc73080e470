package resources

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Report is what the events of a run sum up to. A figure that is not known of all that it would be of is absent.
type Report struct {
	Path       string             `json:"path"`
	State      State              `json:"state"` // sealed, running, cut off; a file by itself: file
	Model      string             `json:"model,omitempty"`
	Levels     []string           `json:"levels"` // in the order in which they held
	Sessions   int64              `json:"sessions"`
	Lines      int64              `json:"lines"`
	Events     map[string]int64   `json:"events"`
	BadLines   int64              `json:"bad_lines"`
	Bad        []BadLine          `json:"bad,omitempty"`              // the first of them
	Unfinished int                `json:"unfinished_bytes,omitempty"` // of a last line without its end
	Losses     []Loss             `json:"losses"`
	Account    *rundir.Account    `json:"account,omitempty"`    // of the run, as its metadata have it
	GivenBack  string             `json:"given_back,omitempty"` // how much of the log is not there any more
	Roofline   *resource.Roofline `json:"roofline,omitempty"`
	Retracted  []Retracted        `json:"retracted,omitempty"`

	// GraphNS is the time in the graphs that were measured, without set-up. TimedNS is that of the TimedGraphs among
	// them that were timed inside, CoveredNS how much of TimedNS is known by component or op, and Coverage their
	// ratio. The times of components, layers and ops are those of all graphs that were timed inside; their shares are
	// of GraphNS, each phase scaled from its timed graphs to all.
	Graphs      int64    `json:"graphs"`
	GraphNS     int64    `json:"graph_ns"`
	SetupNS     *int64   `json:"setup_ns,omitempty"`
	TimedGraphs int64    `json:"timed_graphs"`
	TimedNS     int64    `json:"timed_graph_ns"`
	CoveredNS   int64    `json:"covered_ns"`
	Coverage    *float64 `json:"coverage,omitempty"`
	LookingNS   int64    `json:"looking_ns"` // what timing cost the model, measured; it lies within GraphNS

	Phases     []PhaseRow     `json:"phases"`
	Components []ComponentRow `json:"components"`
	Layers     []LayerRow     `json:"layers"`
	Ops        []OpRow        `json:"ops"`
	Top        []TopRow       `json:"top"`
	Latency    *LatencyRow    `json:"latency,omitempty"`
	Tokens     []*TokenRow    `json:"tokens"`
	TokensMore int64          `json:"tokens_left_out,omitempty"` // rows beyond the bound of memory
	Caches     []*CacheRow    `json:"kv"`
	Memory     MemoryRow      `json:"memory"`
	// Placement is the time of nodes by the device that computed them, DeviceChanges how often an execution went from
	// one to another: ggml copies tensors then.
	Placement     []DeviceRow `json:"placement,omitempty"`
	DeviceChanges *float64    `json:"device_changes_per_graph,omitempty"`

	GPUs  []*GPUUse  `json:"gpus,omitempty"`
	Zones []*ZoneUse `json:"rapl,omitempty"`
	// Energy is what devices used in the executions of each phase, once the session has ended.
	Energy []resource.EnergyUse `json:"energy,omitempty"`
	// GraphEnergy is what devices used in executions, by layer, from DETAILED on.
	GraphEnergy []*GraphEnergy `json:"graph_energy,omitempty"`
	Routed      int64          `json:"expert_routings,omitempty"`

	sum      *Sum
	measured int64              // graphs that GraphNS is the time of
	scale    map[string]float64 // by phase: time in all its graphs, over that in its timed ones

	uncounted bool            // the run was cut off before its losses were counted
	found     string          // what a repair found missing that no loss counts
	stopped   *rundir.Stopped // recording ended before the program did
}

// Loss is events that are not in the log.
type Loss struct {
	Kind  string `json:"kind"`
	Cause string `json:"cause"`
	Count uint64 `json:"count"`
}

// Figures are what a row was added up from.
type Figures struct {
	Events int64    `json:"events"`
	Nodes  int64    `json:"nodes"`
	NS     *int64   `json:"ns,omitempty"`
	Share  *float64 `json:"share,omitempty"` // of the time in graphs
	FLOPs  *int64   `json:"flops,omitempty"` // attention over all cells that graphs give it, padding included
	// without cells that no token may read; absent where that is not known of all
	Useful  *int64 `json:"flops_unmasked,omitempty"`
	Read    *int64 `json:"bytes_read,omitempty"`
	Written *int64 `json:"bytes_written,omitempty"`
	// Rates are there where time, and useful FLOPs or bytes, are known of everything in the row.
	GFLOPsPerS *float64 `json:"gflops_per_s,omitempty"`
	GBPerS     *float64 `json:"gb_per_s,omitempty"`
	Roofline   *float64 `json:"roofline_share,omitempty"`
	Untimed    int64    `json:"events_without_time,omitempty"`
	NoFLOPs    int64    `json:"ops_without_flops,omitempty"`
	// attention of which it is not known which cells may be read
	NoMask  int64 `json:"ops_without_mask,omitempty"`
	NoBytes int64 `json:"ops_without_bytes,omitempty"`
}

// PhaseRow is a phase of the run: its tokens, and the executions that are of it. One that has both a prompt's
// tokens and generated ones is of prefill.
type PhaseRow struct {
	Phase   string `json:"phase"`
	Graphs  int64  `json:"graphs"`
	Mixed   int64  `json:"mixed_graphs"` // of them, those that have tokens of another phase too
	MixedNS int64  `json:"mixed_ns"`     // their time
	// Failed graphs are those that failed or were aborted. They have time, which no rate counts, and no work.
	Failed   int64 `json:"failed_graphs,omitempty"`
	FailedNS int64 `json:"failed_ns,omitempty"`
	Timed    int64 `json:"timed_graphs"` // that were timed inside
	TimedNS  int64 `json:"timed_graph_ns"`
	Tokens   int64 `json:"tokens"`
	// Drafts are rows that a draft model computed, Rejected drafts that the model computed and the program took back.
	// Neither are in Tokens; their time is in that of the phase.
	Drafts   int64 `json:"draft_tokens,omitempty"`
	Rejected int64 `json:"rejected_tokens,omitempty"`
	// TokensPerS is of the time in graphs, without mixed ones and their tokens, and without failed ones.
	TokensPerS *float64 `json:"tokens_per_s,omitempty"`
	Figures
}

// ComponentRow is a component, such as attention, over all layers.
type ComponentRow struct {
	Component string           `json:"component"`
	ByPhase   map[string]int64 `json:"ns_by_phase"`
	Figures
}

// LayerRow is a layer; -1 is what belongs to none.
type LayerRow struct {
	Layer       int              `json:"layer"`
	ByComponent map[string]int64 `json:"ns_by_component"`
	// ApportionedJ is what all devices used for it in graphs that were timed by layers; absent where none was.
	ApportionedJ *float64 `json:"apportioned_j,omitempty"`
	Figures
}

// OpRow is an op over all layers; SeveralOps is what was timed together.
type OpRow struct {
	Op string `json:"operation"`
	Figures
}

// TopRow is a tensor over all layers.
type TopRow struct {
	Op   string `json:"operation"`
	Name string `json:"name"`
	Figures
}

// LatencyRow is the time from a generated token of a sequence to the next. A quantile is a bound, at most 3 % high.
type LatencyRow struct {
	Count  int64 `json:"count"`
	MeanNS int64 `json:"mean_ns"`
	P50    int64 `json:"p50_at_most_ns"`
	P95    int64 `json:"p95_at_most_ns"`
	P99    int64 `json:"p99_at_most_ns"`
	Least  int64 `json:"min_ns"`
	Most   int64 `json:"max_ns"`
	// Together are tokens beside Count, each in one graph with the one before it in its sequence, such as drafts.
	Together int64 `json:"tokens_together,omitempty"`
}

// CacheRow is a cache with the cells that its context has.
type CacheRow struct {
	*CacheUse
	// of the context, as metadata.json states; absent where that is not known
	Cells     int64    `json:"cells,omitempty"`
	Occupancy *float64 `json:"occupancy,omitempty"`
	// EventsLost are operations on caches that the log lacks. The figures are then those of the others, and how
	// full the cache is is not known.
	EventsLost uint64 `json:"events_lost,omitempty"`
	// Partly: a level left operations out, or a part of the log was given back. It is as with lost ones.
	Partly bool `json:"partly_recorded,omitempty"`
}

// isWhole reports whether it is known how full the cache is.
func (c *CacheRow) isWhole() bool { return c.EventsLost == 0 && !c.Partly }

// maxTop is how many tensors a report lists.
const maxTop = 50

// Summarize reads the log of a run directory, or a file of events, to its end as it is now. each, where it is not
// nil, is given every generated token, and the report then has none. progress, where it is not nil, is called with the
// bytes that were read, of all. Summarize returns early when ctx is done.
func Summarize(ctx context.Context, path string, each func(*TokenRow),
	progress func(done, total int64)) (*Report, error) {
	tail, err := OpenTail(path)
	if err != nil {
		return nil, err
	}
	defer tail.Close()
	tail.Done = ctx.Done()
	s := newSum()
	s.Token = each
	total := tail.Unread()
	for line, err := range tail.All() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("read events of %s: %w", path, err)
		}
		if progress != nil && s.Lines%1024 == 0 {
			progress(total-tail.Unread(), total)
		}
		s.Add(line)
	}
	if each != nil {
		s.waiting.flush(each)
	}
	r := s.Report()
	r.Path, r.Unfinished = path, tail.Unfinished()
	return r, r.describe()
}

// describe adds what the run directory states beside its events.
func (r *Report) describe() error {
	info, err := os.Stat(r.Path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		r.State = "file"
		return nil
	}
	r.State = StateOf(r.Path)
	m, err := rundir.FindMetadata(r.Path)
	if err != nil || m == nil {
		return err
	}
	r.Model, r.Account, r.GivenBack = m.Model.Name, m.Account, m.EventsGivenBack(r.Path)
	r.stopped, r.uncounted = m.Stopped, m.Account == nil && (m.Lossy || len(m.Repaired) > 0)
	r.found = m.RepairFound()
	isLevel := func(c rundir.Change) bool { return c.Level != "" }
	if len(r.Levels) == 0 && r.GivenBack != "" && !slices.ContainsFunc(m.Changes, isLevel) { // the event of it is gone
		if level, err := resource.ParseLevel(m.Settings()["resource_level"].String()); err == nil {
			r.Levels = []string{level.String()}
		}
	}
	for _, c := range r.Caches {
		c.Partly = c.Partly || r.GivenBack != ""
		if cells := Capacity(m, c.CacheUse); cells > 0 {
			c.Cells = cells
			if c.isWhole() {
				c.Occupancy = ratio(float64(c.Used), float64(cells))
			}
		}
	}
	return nil
}

// Capacity is how many cells a cache has, as its context's metadata say; 0 where that is not known.
func Capacity(m *rundir.Metadata, c *CacheUse) int64 {
	for _, context := range m.Contexts {
		if context.Ctx == c.Ctx && c.Type == keyValue && c.Cache != slidingWindow {
			return int64(context.NCtx)
		}
	}
	return 0
}

// keyValue is the type of a cache that has as many cells as its context, unless it is one of a sliding window.
const (
	keyValue      = "key_value"
	slidingWindow = "swa"
)

// Report makes a report of what was added up so far.
func (s *Sum) Report() *Report {
	r := &Report{
		Levels: s.Levels, Sessions: s.Sessions, Lines: s.Lines, Events: s.Events, BadLines: s.BadLines, Bad: s.Bad,
		Losses: []Loss{}, Roofline: s.Roofline, Retracted: s.Retracted,
		Tokens: s.Tokens, TokensMore: s.TokensMore, Routed: s.Routed, GPUs: s.GPUs(), Zones: s.Zones(),
		Energy: s.devices.energy, GraphEnergy: s.devices.graphs,
		Caches: []*CacheRow{}, sum: s, scale: map[string]float64{},
		Memory: MemoryRow{s.Memory.Allocations, s.Memory.Frees, s.Memory.Live, s.Memory.Peak, s.Memory.Types(),
			s.Memory.Total},
	}
	r.Placement, r.DeviceChanges = s.placement.rows()
	if r.Tokens == nil {
		r.Tokens = []*TokenRow{}
	}
	for key, n := range s.Losses {
		r.Losses = append(r.Losses, Loss{key.Kind, key.Cause, n})
	}
	slices.SortFunc(r.Losses, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind+a.Cause, b.Kind+b.Cause))
	})
	for _, c := range s.Caches() {
		r.Caches = append(r.Caches, &CacheRow{CacheUse: c, EventsLost: cacheEventsLost(s), Partly: s.uncached})
	}
	for name, p := range s.Phases {
		if name == PhaseSetup {
			r.SetupNS = &p.NS
			continue
		}
		r.Graphs += p.Graphs
		r.GraphNS += p.NS
		r.TimedGraphs += p.Inside
		r.TimedNS += p.InsideNS
		r.LookingNS += p.LookNS
		r.measured += p.Cost.Timed
		if p.partsNS > 0 {
			r.scale[name] = 0
		}
		if p.InsideNS > 0 {
			r.scale[name] = float64(p.NS) / float64(p.InsideNS) * p.timedShare()
		}
	}
	covered := map[string]int64{}
	for cell, c := range s.Cells.By {
		if cell.Phase != PhaseSetup {
			covered[cell.Phase] += c.NS
		}
	}
	for phase, ns := range covered {
		r.CoveredNS += int64(math.Round(float64(ns) * s.Phases[phase].timedShare()))
	}
	r.CoveredNS += s.Cells.Rest.NS
	r.Coverage = ratio(float64(r.CoveredNS), float64(r.TimedNS))
	if len(s.Cells.By) == 0 {
		r.Coverage = nil
	}
	r.tables(s)
	if l := &s.Latency; l.Count > 0 {
		r.Latency = &LatencyRow{l.Count, l.Sum / l.Count, l.AtMost(0.5), l.AtMost(0.95), l.AtMost(0.99), l.Min, l.Max,
			s.Together}
	}
	return r
}

// tables adds up the rows.
func (r *Report) tables(s *Sum) {
	r.Phases = []PhaseRow{}
	for _, name := range sortedPhases(s.Phases) {
		p := s.Phases[name]
		row := PhaseRow{Phase: name, Graphs: p.Graphs, Mixed: p.Mixed, MixedNS: p.MixedNS, Failed: p.Failed,
			FailedNS: p.FailedNS, Timed: p.Inside, TimedNS: p.InsideNS, Tokens: p.Tokens, Drafts: p.Drafts,
			Rejected: p.Rejected, Figures: r.figures(&p.Cost)}
		row.rates(&p.done)
		if name == PhaseSetup {
			row.Share = nil
		}
		if p.done.Timed == p.done.Events && p.aloneTokens > 0 {
			row.TokensPerS = ratio(float64(p.aloneTokens)*1e9, float64(p.aloneNS))
		}
		if !r.Memory.Elsewhere() {
			row.Roofline = rooflineShare(r.Roofline, &row.Figures)
		}
		r.Phases = append(r.Phases, row)
	}
	components, layers, ops := map[string]*Cost{}, map[int]*Cost{}, map[string]*Cost{}
	byPhase, byComponent := map[string]map[string]int64{}, map[int]map[string]int64{}
	for _, cell := range slices.SortedFunc(maps.Keys(s.Cells.By), Cell.compare) {
		if cell.Phase == PhaseSetup {
			continue
		}
		cost := s.Cells.By[cell]
		scaled := r.scaled(cell.Phase, cost)
		addBy(components, cell.Component, scaled)
		addBy(layers, cell.Layer, scaled)
		addBy(ops, cell.Op, scaled)
		addNS(byPhase, cell.Component, cell.Phase, cost)
		addNS(byComponent, cell.Layer, cell.Component, cost)
	}
	r.Components, r.Layers, r.Ops, r.Top = []ComponentRow{}, []LayerRow{}, []OpRow{}, []TopRow{}
	for _, name := range byTime(components) {
		r.Components = append(r.Components, ComponentRow{name, byPhase[name], r.figures(components[name])})
	}
	for _, layer := range slices.Sorted(maps.Keys(layers)) {
		r.Layers = append(r.Layers, LayerRow{layer, byComponent[layer], layerJoules(r.GraphEnergy, layer),
			r.figures(layers[layer])})
	}
	for _, op := range byTime(ops) {
		r.Ops = append(r.Ops, OpRow{op, r.figures(ops[op])})
	}
	tensors := map[Tensor]*Cost{}
	for _, t := range slices.SortedFunc(maps.Keys(s.Tops.By), Tensor.compare) {
		addBy(tensors, Tensor{Op: t.Op, Name: t.Name}, r.scaled(t.Phase, s.Tops.By[t]))
	}
	tops := slices.SortedFunc(maps.Keys(tensors), func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(tensors[b].allNS(), tensors[a].allNS()), cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Name, b.Name))
	})
	for _, t := range tops[:min(len(tops), maxTop)] {
		r.Top = append(r.Top, TopRow{t.Op, t.Name, r.figures(tensors[t])})
	}
}

// rooflineShare is which part of what the machine can do at most was done: of its operations per second, or of its
// bytes per second, which ever is the narrower at the row's arithmetic intensity.
func rooflineShare(roof *resource.Roofline, f *Figures) *float64 {
	if roof == nil || f.GFLOPsPerS == nil || f.GBPerS == nil || roof.GFLOPsPerS <= 0 || roof.GBPerS <= 0 {
		return nil
	}
	return new(max(*f.GFLOPsPerS/roof.GFLOPsPerS, *f.GBPerS/roof.GBPerS))
}

func addBy[K comparable](sums map[K]*Cost, key K, cost Cost) {
	if sums[key] == nil {
		sums[key] = &Cost{}
	}
	sums[key].add(cost)
}

// addNS adds time, where there is some.
func addNS[K comparable](sums map[K]map[string]int64, key K, of string, cost *Cost) {
	if sums[key] == nil {
		sums[key] = map[string]int64{}
	}
	if cost.Timed > 0 {
		sums[key][of] += cost.NS
	}
}

// byTime orders names by their time, the longest first.
func byTime(sums map[string]*Cost) []string {
	return slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b].allNS(), sums[a].allNS()), cmp.Compare(a, b))
	})
}

// sortedPhases orders phases as a run goes through them.
func sortedPhases(phases map[string]*PhaseSum) []string {
	order := []string{PhaseSetup, phasePrefill, phaseDecode, "maintenance", "teardown"}
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	return slices.SortedFunc(maps.Keys(phases), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
}

func (r *Report) figures(c *Cost) Figures {
	f := Figures{Events: c.Events, Nodes: c.Nodes, Untimed: c.Events - c.Timed, NoFLOPs: c.NoFLOPs, NoMask: c.NoMask,
		NoBytes: c.NoBytes}
	if c.Timed > 0 {
		f.NS, f.Share = &c.NS, ratio(c.allNS(), float64(r.GraphNS))
	}
	if c.Counted > 0 {
		f.FLOPs = &c.FLOPs
		if c.NoMask == 0 {
			f.Useful = &c.Useful
		}
	}
	if c.Sized > 0 {
		f.Read, f.Written = &c.Read, &c.Written
	}
	f.rates(c)
	if share, ok := c.Roofline(); ok {
		f.Roofline = &share
	}
	return f
}

// rates are those of a cost of which all is known.
func (f *Figures) rates(c *Cost) {
	f.GFLOPsPerS, f.GBPerS = nil, nil
	whole := c.Timed == c.Events
	if whole && c.Counted == c.Events && c.NoFLOPs == 0 && c.NoMask == 0 {
		f.GFLOPsPerS = ratio(float64(c.Useful), float64(c.NS))
	}
	if whole && c.Sized == c.Events && c.NoBytes == 0 {
		f.GBPerS = ratio(float64(c.Read+c.Written), float64(c.NS))
	}
}

// ratio is absent where it is of nothing.
func ratio(of, by float64) *float64 {
	if by == 0 {
		return nil
	}
	return new(of / by)
}
