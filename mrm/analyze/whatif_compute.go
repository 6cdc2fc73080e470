package analyze

import (
	"encoding/json"
	"math"

	"github.com/llamatap/llamatap/memtrace"
)

// refreshes is how often what is needed for a time must be written anew where it is retained for another: ⌈d/τ⌉ -
// 1, for it is there anyway for the first τ.
func refreshes(seconds, retention float64) float64 {
	n := math.Ceil(seconds/retention) - 1
	// 10 s in steps of 0.1 s are 100 steps, not 101 because a tenth is not a binary number.
	if whole := math.Round(seconds / retention); math.Abs(seconds/retention-whole) < 1e-9*whole {
		n = whole - 1
	}
	return max(n, 0)
}

// Demand is what a day of a subject, or of several together, asks of a memory. Demands add up.
type Demand struct {
	Bytes           float64 `json:"bytes"`
	ReadPerDay      float64 `json:"bytes_read_per_day"`
	WrittenPerDay   float64 `json:"bytes_written_per_day"`
	RefreshedPerDay Bounds  `json:"bytes_refreshed_per_day"`
}

// plus adds a demand.
func (l Demand) plus(o Demand) Demand {
	return Demand{
		l.Bytes + o.Bytes, l.ReadPerDay + o.ReadPerDay, l.WrittenPerDay + o.WrittenPerDay,
		l.RefreshedPerDay.plus(o.RefreshedPerDay),
	}
}

// demand is what the subject asks of a memory with the class's retention τ, of a run of T seconds:
//
//	ended lives:    Σ bytes · (⌈d/τ⌉ - 1) · 86400/T are refreshed
//	censored lives: low the same, at most high; high bytes · (⌈86400/τ⌉ - 1), for they are needed all day; of
//	                activations low, for they are gone with their graph
//	everything:     all bytes · 86400/τ
//
// d is what was measured, less the resolution of times for low, and with it for high.
//
// Where no retention was published nothing is refreshed.
func (s *subject) demand(c *Class) Demand {
	l := Demand{Bytes: float64(s.Bytes), ReadPerDay: s.perDay(float64(s.BytesRead)),
		WrittenPerDay: s.perDay(float64(s.BytesWritten))}
	switch {
	case c.RetentionS == nil:
	case c.Refresh == Everything:
		l.RefreshedPerDay = exactly(l.Bytes * day / c.RetentionS.Value)
	default:
		l.RefreshedPerDay = s.refreshed(c.RetentionS.Value)
	}
	return l
}

// isPassing reports whether what the subject holds ends with the graph that computed it, so that nothing of it is
// needed when the run has ended.
func (s *subject) isPassing() bool {
	return s.Type == memtrace.Activation || s.Type == memtrace.ComputeBuffer
}

// refreshed is the bytes that are refreshed in a day, because they are needed.
func (s *subject) refreshed(retention float64) (b Bounds) {
	if s.Lives == nil {
		return b
	}
	allDay := refreshes(day, retention)
	for step := range s.Lives.Steps() {
		needed := float64(step.Duration) / 1e9
		least, most := refreshes(max(needed-s.Resolution, 0), retention), refreshes(needed+s.Resolution, retention)
		ended, censored := float64(step.Ended), float64(step.Censored)
		if s.isPassing() {
			b.Low += s.perDay(least * (ended + censored))
			b.High += s.perDay(most * (ended + censored))
			continue
		}
		// A weight may be needed for longer than the run was watched: it was loaded before.
		b.Low += s.perDay(least*ended) + censored*min(s.perDay(least), allDay)
		b.High += s.perDay(most*ended) + censored*allDay
	}
	return b
}

// Energy is the energy used per day, in J. A figure is nil if an input of it was not published.
type Energy struct {
	Read    *float64 `json:"read_j,omitempty"`
	Write   *float64 `json:"write_j,omitempty"`
	Refresh *Bounds  `json:"refresh_j,omitempty"`
	// Total is nil if one of the three is.
	Total *Bounds `json:"total_j,omitempty"`
}

// joules is the energy of bytes at so many pJ per bit.
func joules(bytes, pj float64) float64 { return bytes * 8 * pj * 1e-12 }

// energy is
//
//	read:    8 · bytes read per day · read_pj_per_bit
//	write:   8 · bytes written per day · write_pj_per_bit
//	refresh: 8 · bytes refreshed per day · refresh_pj_per_bit, else read_pj_per_bit + write_pj_per_bit
func (l *Demand) energy(c *Class) (e Energy) {
	if c.ReadPJ != nil {
		e.Read = new(joules(l.ReadPerDay, c.ReadPJ.Value))
	}
	if c.WritePJ != nil {
		e.Write = new(joules(l.WrittenPerDay, c.WritePJ.Value))
	}
	if pj, ok := c.refreshPJ(); ok && c.RetentionS != nil {
		e.Refresh = new(l.RefreshedPerDay.times(joules(1, pj)))
	}
	if e.Read != nil && e.Write != nil && e.Refresh != nil {
		e.Total = new(e.Refresh.plus(exactly(*e.Read + *e.Write)))
	}
	return e
}

// refreshPJ is the energy of refreshing a bit, as far as it is known.
func (c *Class) refreshPJ() (pj float64, ok bool) {
	switch {
	case c.RefreshPJ != nil:
		return c.RefreshPJ.Value, true
	case c.ReadPJ != nil && c.WritePJ != nil:
		return c.ReadPJ.Value + c.WritePJ.Value, true
	}
	return 0, false
}

// refreshesPerDay is how often a byte is refreshed in a day, on average over all bytes.
func (l *Demand) refreshesPerDay() Bounds {
	if l.Bytes == 0 {
		return Bounds{}
	}
	return l.RefreshedPerDay.times(1 / l.Bytes)
}

// writesPerCell is how often a cell is written in a day, by the program and by refreshing, if wear is levelled over
// all bytes:
//
//	(bytes written per day + bytes refreshed per day) / bytes
//
// Without levelling, the cells that are written most wear out sooner.
func (l *Demand) writesPerCell() Bounds {
	if l.Bytes == 0 {
		return Bounds{}
	}
	return l.RefreshedPerDay.plus(exactly(l.WrittenPerDay)).times(1 / l.Bytes)
}

// daysPerYear is of the Julian calendar.
const daysPerYear = 365.25

// lifetimeYears is until cells wear out: endurance_writes / writes per cell and day / 365.25; infinite where
// nothing is written. Its low bound is of the high one of writes. It is nil where no endurance was published.
func (l *Demand) lifetimeYears(c *Class) *Years {
	if c.Endurance == nil {
		return nil
	}
	writes := l.writesPerCell()
	return &Years{c.Endurance.Value / writes.High / daysPerYear, c.Endurance.Value / writes.Low / daysPerYear}
}

// Years are bounds of a lifetime; infinite where nothing is written, which in JSON is null.
type Years Bounds

// MarshalJSON writes an object with low and high.
func (y Years) MarshalJSON() ([]byte, error) {
	finite := func(v float64) *float64 {
		if math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	return json.Marshal(map[string]*float64{"low": finite(y.Low), "high": finite(y.High)})
}
