package oplog

import (
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// energy divides what devices used in windows among the executions in them, by time.
type energy struct {
	domains []*domain
	spans   []ownedSpan // executions of which windows may come, in order of their beginnings
	active  []ownedSpan // used again
	divided int64       // windows up to this time are divided
	tokens  [parts]int64
	late    [parts]int64 // time of executions that were recorded when their windows were divided
	owners  map[owner]*owned
	done    []*graphEnergy // all of whose windows are divided
}

// part is what energy is divided among: the phases, and two more.
type part uint8

const (
	partMixed   part = part(ggmlhooks.PhaseTeardown) + 1 + iota // prompt tokens and generated ones in one execution
	partOutside                                                 // no execution
	parts
)

func (p part) String() string {
	switch p {
	case partMixed:
		return "mixed"
	case partOutside:
		return "outside"
	}
	return ggmlhooks.Phase(p).String()
}

// busySpan is the time of an execution.
type busySpan struct {
	start, end int64
	part       part
}

// ownedSpan is the time of an execution whose rows are known to be of requests.
type ownedSpan struct {
	busySpan
	rows []rowsOf // of prefill and decode; empty of other phases
	ns   float64  // in a window
	of   *graphEnergy
}

// domain is a device with an energy counter.
type domain struct {
	name    string
	number  int
	source  string         // the least exact source of its energy; "": no window has a known energy
	end     int64          // of the newest window
	windows []energyWindow // not yet divided among executions, in order
	use     [parts]partEnergy
	owners  map[owner]*ownerEnergy
}

// energyWindow is a time and what was used in it; of one without a source that is not known.
type energyWindow struct {
	start, end int64
	joules     float64
	source     string
}

// partEnergy is what a domain used in a part.
type partEnergy struct {
	joules, ns float64
	shared     float64 // joules of windows that have another part's executions too
	windows    int64
	windowNS   float64 // length of the windows
	busyNS     float64 // executions of any part in them
	uncovered  float64 // time of which the energy is not known
}

// The most windows of a domain, and executions, that are kept. Beyond them the older half of the time is divided.
const (
	maxWindows = 1 << 12
	maxSpans   = 1 << 14
)

// execution adds an execution that has ended.
func (e *energy) execution(x *execution) {
	s := busySpan{x.BeganNS(), x.finish(), part(x.Phase)}
	if _, decode := x.rowPhases(); x.Phase == ggmlhooks.PhasePrefill && decode > 0 {
		s.part = partMixed
	}
	if !x.Failed() {
		e.tokens[s.part] += int64(len(x.Rows))
	}
	if len(x.Rows) > 0 && (s.part == partMixed || x.Phase == ggmlhooks.PhasePrefill ||
		x.Phase == ggmlhooks.PhaseDecode) {
		o := ownedSpan{busySpan: s, rows: e.rowShares(x)}
		if x.level.Includes(resource.KindGraphEnergy) && !x.Failed() {
			o.of = newGraphEnergy(x, s)
		}
		e.add(o)
		return
	}
	e.add(ownedSpan{busySpan: s})
}

func (e *energy) add(s ownedSpan) {
	if s.start < e.divided {
		late := min(s.end, e.divided) - s.start
		e.late[s.part] += late
		for _, of := range s.rows {
			e.owners[of.owner].late += float64(late) * of.share
		}
		if s.of != nil {
			s.of.late += late
		}
		s.start = e.divided
	}
	if s.end <= s.start {
		return
	}
	at := len(e.spans)
	for at > 0 && e.spans[at-1].start > s.start {
		at--
	}
	e.spans = slices.Insert(e.spans, at, s)
	if len(e.spans) >= maxSpans {
		e.divide(e.spans[len(e.spans)/2].start)
	}
}

// window adds what a domain used in a window, "" being the source of what is not known; one of no length is where
// windows begin.
func (e *energy) window(name string, w energyWindow) {
	i := slices.IndexFunc(e.domains, func(d *domain) bool { return d.name == name })
	if i < 0 {
		i = len(e.domains)
		e.domains = append(e.domains, &domain{name: name, windows: []energyWindow{{math.MinInt64, w.start, 0, ""}},
			number: i, owners: map[owner]*ownerEnergy{}})
	}
	d := e.domains[i]
	if w.end > w.start {
		d.windows = append(d.windows, w)
	}
	if d.end = w.end; len(d.windows) >= maxWindows {
		e.divide(d.windows[len(d.windows)/2].end)
	}
}

// divide divides the windows that end by a time. Of a domain that has no window up to it, the energy is not known.
func (e *energy) divide(until int64) {
	needed := until // where the first window begins that is left
	for _, d := range e.domains {
		if d.end < until {
			d.windows = append(d.windows, energyWindow{d.end, until, 0, ""})
			d.end = until
		}
		spans, n := e.spans, 0
		for ; n < len(d.windows) && d.windows[n].end <= until; n++ {
			w := &d.windows[n]
			for len(spans) > 0 && spans[0].end <= w.start {
				spans = spans[1:]
			}
			d.divide(w, e.within(w, spans), e.active)
		}
		d.windows = slices.Delete(d.windows, 0, n)
		if len(d.windows) > 0 {
			needed = min(needed, d.windows[0].start)
		}
	}
	e.spans = slices.DeleteFunc(e.spans, func(s ownedSpan) bool {
		over := s.end <= needed
		if over && s.of != nil {
			e.done = append(e.done, s.of)
		}
		return over
	})
	e.divided = max(e.divided, until)
}

// settle divides the windows that end by a time, as far as those of all domains are there. No execution that began
// before it may come.
func (e *energy) settle(until int64) {
	for _, d := range e.domains {
		until = min(until, d.end)
	}
	if len(e.domains) > 0 && until > e.divided {
		e.divide(until)
	}
}

// within is the time of each part in a window, and in e.active that of each execution; those that ran at once share it.
func (e *energy) within(w *energyWindow, spans []ownedSpan) (ns [parts]float64) {
	now, active, ended := w.start, e.active[:0], 0 // of active the first ones have ended
	to := func(until int64) {
		for ended < len(active) && now < until {
			next := until
			for _, s := range active[ended:] {
				next = min(next, s.end)
			}
			for i := ended; i < len(active); i++ {
				s := &active[i]
				s.ns += float64(next-now) / float64(len(active)-ended)
			}
			now = next
			for i := ended; i < len(active); i++ {
				if active[i].end <= now {
					active[i], active[ended] = active[ended], active[i]
					ended++
				}
			}
		}
		now = max(now, until)
	}
	for _, s := range spans {
		if s.start >= w.end {
			break
		}
		if s.end > w.start {
			to(s.start)
			active = append(active, s)
		}
	}
	to(w.end)
	for i := range active {
		ns[active[i].part] += active[i].ns
	}
	e.active = active
	return ns
}

// divide divides a window by the time of each part in it.
func (d *domain) divide(w *energyWindow, ns [parts]float64, spans []ownedSpan) {
	d.apportion(w, spans)
	busy, has := 0.0, 0
	for _, of := range ns {
		busy += of
		if of > 0 {
			has++
		}
	}
	if w.source == "" {
		for p, of := range ns {
			d.use[p].uncovered += of
		}
		return
	}
	if d.source != resource.PowerSamples {
		d.source = w.source
	}
	length := float64(w.end - w.start)
	ns[partOutside] = max(length-busy, 0)
	for p, of := range ns {
		if of == 0 {
			continue
		}
		use, joules := &d.use[p], w.joules*of/length
		use.joules += joules
		use.ns += of
		use.windows++
		use.windowNS += length
		use.busyNS += busy
		if has > 1 || part(p) == partOutside && has > 0 {
			use.shared += joules
		}
	}
}

// rows are what each domain used in each part, outside of executions as well, in windows that are divided.
func (e *energy) rows() (rows []resource.EnergyUse) {
	for _, d := range e.domains {
		if d.source == "" {
			continue
		}
		for p := range parts {
			use := &d.use[p]
			row := resource.EnergyUse{
				Domain: d.name, Phase: p.String(), EnergySource: d.source, DurationNS: int64(math.Round(use.ns)),
				Windows: use.windows, UncoveredNS: int64(math.Round(use.uncovered)) + e.late[p],
			}
			if use.windows == 0 && row.UncoveredNS == 0 {
				continue
			}
			if use.windows > 0 {
				row.EnergyJ = &use.joules
				if p != partOutside {
					row.BusyShare = ratio(use.busyNS, use.windowNS)
				}
				row.SharedShare = ratio(use.shared, use.joules)
			}
			if n := e.tokens[p]; n > 0 && p != part(ggmlhooks.PhaseSetup) {
				row.Tokens = &n
				if row.UncoveredNS == 0 {
					row.JoulesPerToken = ratio(use.joules, float64(n))
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// ratio is a quotient, nil where there is none.
func ratio(of, all float64) *float64 {
	if all <= 0 {
		return nil
	}
	of /= all
	return &of
}
