package resources

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/resource"
)

// The bounds of a sum's memory. What comes beyond them is counted.
const (
	maxCells  = 1 << 16 // different (phase, layer, component, op)
	maxTops   = 1 << 13 // different tensors
	maxTokens = 1 << 16 // rows of tokens that are kept
	maxBad    = 16      // bad lines that are reported by number and reason
	maxExecs  = 256     // newest executions, which may still produce a token
	maxSeqs   = 1 << 12 // sequences of the KV cache

	maxPhases    = 64
	maxRetracted = 64
	maxLosses    = 1 << 10 // different kinds and causes
)

// BadLine is a line that is not an event.
type BadLine struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

// LossKey is what lost events are counted by.
type LossKey struct{ Kind, Cause string }

// Sum adds up the events of a log, in the order in which they appear there. Its memory is bounded. It is not for
// several goroutines.
type Sum struct {
	// Token, where it is set, is given each generated token, and none is kept: those of which more is read up to
	// maxWaiting tokens later, and the last ones at the end. The row is the callee's.
	Token func(*TokenRow)

	Lines    int64
	Events   map[string]int64 // by kind
	Bad      []BadLine        // the first of them
	BadLines int64
	Sessions int64
	Level    string             // the newest
	Levels   []string           // all that there were, in order
	Roofline *resource.Roofline // of the newest session that has one

	Phases PhaseSums
	Cells  Costs[Cell]
	Tops   Costs[Tensor]
	Losses map[LossKey]uint64

	Retracted []Retracted
	Memory    Memory
	caches    caches
	uncached  bool // a level left operations on caches out, or files of the log are not there any more
	devices   devices
	placement placement
	Routed    int64 // choices of experts

	Tokens     []*TokenRow
	TokensMore int64 // that were not kept
	Latency    resource.Spread
	// Together are generated tokens in one graph with the one before them in their sequence, such as drafts.
	Together int64
	newest   *TokenRow // of generated tokens
	execs    executions
	waiting  waitingTokens
	work     work                     // the event that is read
	parts    map[PhaseComponent]int64 // times in the execution whose graph comes next
	inside   map[PhaseComponent]int64 // times in executions that were timed as a whole, too
	recent   *recent                  // is given what is new, where it is set
	skim     skim
	first    int64 // unix_ns of the first event
	last     int64
}

// newSum returns a sum of nothing.
func newSum() *Sum {
	s := &Sum{
		Events: map[string]int64{}, Phases: PhaseSums{}, Cells: Costs[Cell]{map[Cell]*Cost{}, Cost{}, maxCells},
		Tops: Costs[Tensor]{map[Tensor]*Cost{}, Cost{}, maxTops}, Losses: map[LossKey]uint64{},
	}
	s.execs.byNumber, s.execs.byEntry = map[uint64]*execCost{}, map[graphEntry]*execCost{}
	s.Memory.types = map[string]*MemoryType{}
	s.caches, s.devices = caches{}, devices{gpus: map[int]*GPUUse{}, zones: map[string]*ZoneUse{}}
	s.placement.by = map[string]*DeviceRow{}
	s.parts, s.inside = map[PhaseComponent]int64{}, map[PhaseComponent]int64{}
	return s
}

// Add takes a line. A bad one is counted, and its reason kept with the first of them.
func (s *Sum) Add(line Line) {
	s.Lines = max(s.Lines, line.Number)
	if line.Err != nil {
		s.bad(line.Number, line.Err)
		return
	}
	kind, ok := KindOf(line.Text)
	if !ok {
		s.bad(line.Number, badLine(line.Text))
		return
	}
	if s.skim.on && skimmed[kind] {
		s.skim.left = true
		s.Events[kind.String()]++
		return
	}
	if !summed[kind] {
		if !json.Valid(line.Text) {
			s.bad(line.Number, badLine(line.Text))
			return
		}
		s.Events[kind.String()]++
		return
	}
	var event any
	if s.work.clear(); kind == resource.KindCompute {
		event = &s.work
	} else {
		event = resource.New(kind)
	}
	if err := json.Unmarshal(line.Text, event); err != nil {
		s.bad(line.Number, fmt.Errorf("read %v: %w", kind, err))
		return
	}
	s.Events[kind.String()]++
	s.addEvent(event)
}

func (s *Sum) bad(number int64, reason error) {
	s.BadLines++
	if len(s.Bad) < maxBad {
		s.Bad = append(s.Bad, BadLine{number, oneLine(reason.Error())})
	}
}

// oneLine shortens a reason, which may quote a long line.
func oneLine(text string) string {
	text = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text), "?")
	if runes := []rune(text); len(runes) > 160 {
		return string(runes[:159]) + "…"
	}
	return text
}

// Caches lists the KV caches and recurrent memories that were reported.
func (s *Sum) Caches() []*CacheUse { return s.caches.list() }

// cacheEventsLost is how many operations on caches the log lacks: their figures are not whole where it is not 0.
func cacheEventsLost(s *Sum) (n uint64) {
	for key, count := range s.Losses {
		if key.Kind == resource.KindKV.String() {
			n += count
		}
	}
	return n
}

// CachesWhole reports whether the log has all operations on caches: none was lost or given back, and no level left
// them out.
func (s *Sum) CachesWhole() bool { return !s.uncached && cacheEventsLost(s) == 0 }

// addEvent adds up one event.
func (s *Sum) addEvent(event any) {
	switch e := event.(type) {
	case *resource.SessionStart:
		s.Sessions++
		clear(s.waiting.by) // executions are numbered anew
		s.newest = nil
		s.setLevel(e.Level)
		if e.Roofline != nil {
			s.Roofline = e.Roofline
		}
		s.stamp(&e.Header)
	case *resource.LevelChange:
		s.setLevel(e.Level)
	case *work:
		s.compute(e)
	case *resource.ComponentEnd:
		s.component(e)
	case *resource.Graph:
		s.skim.graph(e)
		s.Phases.add(e)
		if isInside(e) {
			for key, ns := range s.parts {
				addPart(s.inside, key, ns)
			}
		}
		clear(s.parts)
		s.execs.end(e)
		s.stamp(&e.Header)
		if s.recent != nil {
			s.recent.graph(e)
		}
	case *resource.Phase:
		if e.LastExec != nil && len(s.Retracted) < maxRetracted {
			s.Retracted = append(s.Retracted, Retracted{e.Ctx, e.Exec, *e.LastExec})
		}
	case *resource.OutputToken:
		s.output(e)
	case *resource.Allocation:
		s.Memory.allocate(e)
	case *resource.Deallocation:
		s.Memory.Frees++
		s.Memory.live(e.LiveBytes)
		s.Memory.findOrAdd(e.MemoryType).Freed += int64(e.AllocationBytes)
	case *resource.KV:
		s.caches.add(e)
	case *resource.GPUSample:
		s.devices.addGPU(e)
	case *resource.RAPLSample:
		s.devices.addZone(e)
	case *resource.Energy:
		if len(s.devices.energy) < maxEnergy {
			s.devices.energy = append(s.devices.energy, e.EnergyUse)
		}
	case *resource.GraphEnergy:
		s.devices.addGraph(e)
		s.waiting.energy(e)
	case *resource.Routing:
		s.Routed++
		if s.recent != nil {
			s.recent.routed(e.Experts)
		}
	case *resource.Loss:
		if key := (LossKey{e.Kind, e.Cause}); len(s.Losses) < maxLosses || s.Losses[key] > 0 {
			s.Losses[key] += e.Count
		}
	case *resource.Summary:
		s.Memory.Total = &Totals{Peak: e.PeakLiveBytes, Allocated: e.AllocatedBytes, Freed: e.FreedBytes}
		s.Memory.Peak = max(s.Memory.Peak, int64(e.PeakLiveBytes))
	case *resource.SessionEnd:
		s.Phases.reject(nil, e.Rejected)
		s.stamp(&e.Header)
	}
}

func (s *Sum) setLevel(of resource.Level) {
	s.uncached = s.uncached || !of.Includes(resource.KindKV)
	level := of.String()
	if n := len(s.Levels); n == 0 || s.Levels[n-1] != level {
		s.Levels = append(s.Levels, level)
		if len(s.Levels) > 64 {
			s.Levels = s.Levels[1:]
		}
	}
	s.Level = level
}

func (s *Sum) stamp(h *resource.Header) {
	if h.UnixNS == 0 {
		return
	}
	if s.first == 0 {
		s.first = h.UnixNS
	}
	s.last = max(s.last, h.UnixNS)
}

// compute adds the costs of nodes.
func (s *Sum) compute(e *work) {
	if !e.adds() {
		return
	}
	cost := costOf(e)
	cell := Cell{Phase: e.Phase, Layer: e.LayerID, Component: e.ComponentType, Op: e.op()}
	s.Cells.add(cell, cost)
	s.placement.add(e)
	if cost.Timed > 0 {
		addPart(s.parts, PhaseComponent{cell.Phase, cell.Component}, cost.NS)
	}
	if s.recent != nil && cost.Timed > 0 {
		s.recent.node(cell, cost.NS)
	}
	if cell.Op != SeveralOps && e.Phase != PhaseSetup {
		s.Tops.add(Tensor{e.Phase, e.Operation, bareName(e.Name)}, cost)
	}
	s.execs.inside(e)
}

// component adds the time of a component that a program reported itself, through LRI's header: what it reports
// of ops has no times. The tap reports components as well as their ops, whose times are added up.
func (s *Sum) component(e *resource.ComponentEnd) {
	if e.Exec == 0 {
		s.Cells.add(Cell{Layer: e.LayerID, Component: e.ComponentType, Op: SeveralOps},
			Cost{Events: 1, Timed: 1, NS: e.DurationNS})
		addPart(s.inside, PhaseComponent{Component: e.ComponentType}, e.DurationNS)
	}
}

// addPart adds a time to sums, of which there is a bounded number.
func addPart(sums map[PhaseComponent]int64, key PhaseComponent, ns int64) {
	if _, known := sums[key]; known || len(sums) < maxCells {
		sums[key] += ns
	}
}

// bareName cuts the layer off a tensor's name: ffn_out-3, and node_30's number.
func bareName(name string) string {
	if i := strings.LastIndexAny(name, "-_"); i > 0 && i+1 < len(name) &&
		strings.Trim(name[i+1:], "0123456789") == "" &&
		(name[i] == '-' || name[:i] == "node") {
		return name[:i]
	}
	return name
}

// Retracted is executions that were reported before it was decided that they were set-up. They are counted in the
// phases that they seemed to be of.
type Retracted struct {
	Ctx       *uint32 `json:"ctx,omitempty"`
	FirstExec uint64  `json:"first_exec"`
	LastExec  uint64  `json:"last_exec"`
}

// PhaseComponent is the key by which time is reported.
type PhaseComponent struct{ Phase, Component string }

// output takes a generated token. The execution that produced it began the token's latency before the one that
// takes it as input.
func (s *Sum) output(e *resource.OutputToken) {
	row := &TokenRow{
		Index: e.TokenIndex, Token: e.TokenID, Text: e.TokenText, Ctx: e.Ctx, Seq: e.SeqID, Pos: e.Pos, Exec: e.Exec,
		LatencyNS: e.LatencyNS, First: e.First,
	}
	if before := s.newest; e.LatencyNS == nil && before != nil && before.Exec == row.Exec && row.Seq != nil &&
		before.Seq != nil && *before.Seq == *row.Seq {
		s.Together++
	}
	s.newest = row
	if e.LatencyNS != nil {
		if !e.First {
			s.Latency.Add(*e.LatencyNS)
		}
		if c := s.execs.byEntry[entryOf(&e.Header, e.MonoNS-*e.LatencyNS)]; c != nil {
			row.produced(c)
		}
	}
	if s.recent != nil {
		s.recent.token(e)
	}
	if s.Token == nil && len(s.Tokens) >= maxTokens {
		s.TokensMore++
		return
	}
	if s.Token == nil {
		s.Tokens = append(s.Tokens, row)
	}
	s.waiting.add(row, s.Token)
}

// ByPhaseAndComponent returns the time in nodes that was measured, in ns, of executions that were timed as a whole,
// too. The map is the sum's own.
func (s *Sum) ByPhaseAndComponent() map[PhaseComponent]int64 { return s.inside }
