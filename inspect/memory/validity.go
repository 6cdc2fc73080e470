package memory

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Class is how far a run may be believed.
type Class string

// The classes of mrm-trace. What is contaminated is archived, and left out of aggregates and figures.
const (
	Clean        Class = "clean"
	Marginal     Class = "marginal"
	Contaminated Class = "contaminated"
)

// classes has the best first.
var classes = []Class{Clean, Marginal, Contaminated}

// Criterion is one of the conditions that all must hold, with what was measured.
type Criterion struct {
	Name string `json:"name"` // the key of Observer that it looks at
	Unit string `json:"unit"`
	// Value is what was measured; nil: it could not be.
	Value    *float64 `json:"value,omitempty"`
	Clean    string   `json:"clean"`    // the bound of the class, such as "< 10"
	Marginal string   `json:"marginal"` // the same
	Class    Class    `json:"class"`    // the best class that it allows
	// Allowance is an absolute amount up to which the criterion is clean whatever its share, and Amount what was
	// measured of that.
	Allowance string   `json:"allowance,omitempty"`
	Amount    *float64 `json:"amount,omitempty"`
	Why       string   `json:"why,omitempty"`
}

// Validity is a run's class and what it follows from.
type Validity struct {
	Class    Class       `json:"class"`
	Criteria []Criterion `json:"criteria"`
}

// Why is one line that says what keeps the run from being clean; "" of a clean one.
func (v *Validity) Why() string {
	var why []string
	for _, c := range v.Criteria {
		switch {
		case c.Class == Clean:
		case c.Value == nil:
			why = append(why, fmt.Sprintf("%s is not known", c.Name))
		default:
			why = append(why, fmt.Sprintf("%s %.4g, clean is %s%s", c.Name, *c.Value, c.Clean, orAllowed(&c)))
		}
	}
	return strings.Join(why, "; ")
}

// orAllowed is the allowance of a criterion as a further way to be clean.
func orAllowed(c *Criterion) string {
	if c.Allowance == "" {
		return ""
	}
	return " or " + c.Allowance
}

// rule is one of the criteria of mrm-trace, with the allowance of small runs.
type rule struct {
	name, unit      string
	clean, marginal float64
	inclusive       bool // of the marginal bound; and clean is then equal to its bound
	of              func(*Observer) *float64
	allowance       *allowance
}

// allowance is what an observer may take of any run: of a small model, shares of it say how small the model is.
type allowance struct {
	most  float64
	words string
	of    func(*Observer) float64 // 0: not known
}

// The allowances of an observer.
const (
	allowedBytes = 64 << 20
	allowedCPU   = 250 * time.Millisecond
)

var rules = []rule{
	{"cpu_peak_pct", "% of one processor", 10, 20, false, func(o *Observer) *float64 { return o.CPUPeakPct },
		&allowance{float64(allowedCPU), "0.25 s in all", func(o *Observer) float64 { return float64(o.CPUNS.Sum()) }}},
	{"memory_pct", "% of the target's RSS", 5, 15, false, func(o *Observer) *float64 { return o.MemoryPct },
		&allowance{allowedBytes, "64 MiB", func(o *Observer) float64 { return float64(o.MemoryBytes) }}},
	{"throttle_events", "events", 0, 2, true, func(o *Observer) *float64 {
		if o.ThrottleEvents == nil {
			return nil
		}
		return new(float64(*o.ThrottleEvents))
	}, nil},
	{"baseline_cpu_pct", "% of all processors", 15, 30, false, func(o *Observer) *float64 { return o.BaselineCPUPct },
		nil},
}

// Judge gives a run its class: clean with the observer's peak of CPU below 10 %, its peak of memory below 5 % of
// the target's peak RSS, no throttle event and baseline CPU below 15 %; marginal below 20 %, below 15 %, with at
// most two events and below 30 %; else contaminated. An observer within [allowedCPU] and [allowedBytes] is clean by
// these two, whatever their share.
//
// What is not known cannot be held against its bound, and allows marginal at best: a run is clean by evidence. Of
// throttle events that is so only where the machine has no source of them at all.
func Judge(o *Observer) Validity {
	v := Validity{Class: Clean}
	for i := range rules {
		c := rules[i].judge(o)
		v.Criteria = append(v.Criteria, c)
		v.Class = classes[max(slices.Index(classes, v.Class), slices.Index(classes, c.Class))]
	}
	return v
}

func (r *rule) judge(o *Observer) Criterion {
	c := Criterion{Name: r.name, Unit: r.unit, Value: r.of(o)}
	below := func(bound float64) bool { return *c.Value < bound }
	c.Clean, c.Marginal = fmt.Sprintf("< %g", r.clean), fmt.Sprintf("< %g", r.marginal)
	if r.inclusive {
		c.Clean, c.Marginal = fmt.Sprintf("= %g", r.clean), fmt.Sprintf("<= %g", r.marginal)
		below = func(bound float64) bool { return *c.Value <= bound }
	}
	if a := r.allowance; a != nil {
		c.Allowance = a.words
		if amount := a.of(o); amount > 0 {
			c.Amount = &amount
		}
	}
	switch {
	case c.Value != nil && *c.Value != *c.Value:
		c.Class, c.Why = Contaminated, "it is not a number"
	case c.Amount != nil && *c.Amount <= r.allowance.most:
		c.Class = Clean
	case c.Value == nil:
		c.Class, c.Why = Marginal, "it could not be measured on this machine"
	case below(r.clean):
		c.Class = Clean
	case below(r.marginal):
		c.Class = Marginal
	default:
		c.Class = Contaminated
	}
	return c
}
