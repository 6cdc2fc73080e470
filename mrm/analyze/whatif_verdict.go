package analyze

import (
	"cmp"
	"math"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// Verdict says whether a region could live in a memory.
type Verdict string

// The verdicts.
const (
	// AsItIs: nothing that is written is needed for longer than it is retained, and cells live long enough.
	AsItIs Verdict = "as_it_is"
	// Refreshed: with refreshing, which moves fewer bytes than the program does, and cells live long enough.
	Refreshed Verdict = "with_refresh"
	// RefreshBound: refreshing moves more bytes than the program reads and writes.
	RefreshBound Verdict = "refresh_bound"
	// WearsOut: cells are worn out before the years that are asked for.
	WearsOut Verdict = "wears_out"
	// TooShort: the bounds have different verdicts, because the run was too short to show how long data is needed.
	TooShort Verdict = "insufficient"
	// Unknown: a figure that is needed was not published, or nothing is known of how long data is needed.
	Unknown Verdict = "unknown"
)

// demandOptions say what is asked of a memory. The zero value has the defaults.
type demandOptions struct {
	Years      float64 // that cells must live; 0: 5
	Tokens     int64   // of all executions, set-up's included; 0: not known
	Thresholds memtrace.Thresholds
	// Types are measured types as a whole. Labels of a type that is missing are of its regions together, which is
	// the same where regions share no memory: a byte that another region overwrites ends a life of the region, not
	// of the memory.
	Types map[memtrace.RegionType]subject
}

func (o demandOptions) years() float64 { return cmp.Or(o.Years, 5) }

// judgeBounds gives the verdict of one pair of bounds.
func judgeBounds(refreshed, traffic, years, want float64) Verdict {
	switch {
	case years < want:
		return WearsOut
	case refreshed <= 0:
		return AsItIs
	case refreshed > traffic:
		return RefreshBound
	}
	return Refreshed
}

// verdict is that of a demand; known reports whether it is known how long data is needed.
func (l *Demand) verdict(c *Class, o demandOptions, known bool) Verdict {
	years := Years{math.Inf(1), math.Inf(1)}
	if life := l.lifetimeYears(c); life != nil {
		years = *life
	}
	if c.RetentionS == nil || c.Refresh != Everything && !known {
		if years.High < o.years() { // what the program writes is enough
			return WearsOut
		}
		return Unknown
	}
	traffic := l.ReadPerDay + l.WrittenPerDay
	best := judgeBounds(l.RefreshedPerDay.Low, traffic, years.High, o.years())
	worst := judgeBounds(l.RefreshedPerDay.High, traffic, years.Low, o.years())
	if best != worst {
		return TooShort
	}
	return best
}

// Row is what is found for a type of regions, or for one, in a class of memory.
type Row struct {
	Type    string `json:"region_type"`
	Region  *int64 `json:"region_id,omitempty"` // of a row of one
	Name    string `json:"name,omitempty"`
	Regions int    `json:"regions"`
	Class   string `json:"class"`
	Demand
	// Refreshes is how often a byte is refreshed, on average over all.
	Refreshes     Bounds `json:"refreshes_per_day"`
	WritesPerCell Bounds `json:"writes_per_cell_per_day"`
	Lifetime      *Years `json:"lifetime_years,omitempty"`
	Energy        Energy `json:"energy_per_day"`
	// EnergyPerToken is in J.
	EnergyPerToken *Bounds `json:"energy_per_token_j,omitempty"`
	Verdict        Verdict `json:"verdict"`
}

// judgeRow works a row out for subjects together, which are of one type and of one run: wear is levelled over all of
// them.
func judgeRow(subjects []subject, c *Class, o demandOptions) Row {
	row := Row{Regions: len(subjects), Class: c.ID}
	known, seconds := false, 0.0
	for i := range subjects {
		s := &subjects[i]
		row.Type, seconds = s.Type.String(), s.Seconds
		row.Demand = row.Demand.plus(s.demand(c))
		known = known || s.Lives != nil && s.Lives.Count > 0
	}
	row.Refreshes = row.Demand.refreshesPerDay()
	row.WritesPerCell = row.Demand.writesPerCell()
	row.Lifetime = row.lifetimeYears(c)
	row.Energy = row.Demand.energy(c)
	if row.Energy.Total != nil && o.Tokens > 0 && seconds > 0 {
		row.EnergyPerToken = new(row.Energy.Total.times(seconds / day / float64(o.Tokens)))
	}
	row.Verdict = row.Demand.verdict(c, o, known)
	return row
}

// byType puts subjects of a type together, in the order of types.
func byType(subjects []subject) [][]subject {
	sorted := slices.Clone(subjects)
	slices.SortStableFunc(sorted, func(a, b subject) int { return cmp.Compare(a.Type, b.Type) })
	var groups [][]subject
	for first := 0; first < len(sorted); {
		end := first
		for end < len(sorted) && sorted[end].Type == sorted[first].Type {
			end++
		}
		groups = append(groups, sorted[first:end])
		first = end
	}
	return groups
}
