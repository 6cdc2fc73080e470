package memtrace

// Suitability says how well memory that retains what is written for a limited time suits a region.
type Suitability string

// The labels of mrm-trace, and one for runs that are too short for one.
const (
	HighMRM         Suitability = "high_mrm"
	MediumMRM       Suitability = "medium_mrm"
	LowMRM          Suitability = "low_mrm"
	InsufficientMRM Suitability = "insufficient"
)

// Thresholds say from what on a label is given. The zero value has those of mrm-trace: high from a write-once ratio
// of 0.8 and a 99th percentile of the retention of 10 s on, medium from 0.5 and a median of 1 s on.
type Thresholds struct {
	HighWriteOnce   float64 `json:"high_write_once"`
	MediumWriteOnce float64 `json:"medium_write_once"`
	HighP99NS       int64   `json:"high_p99_ns"`
	MediumP50NS     int64   `json:"medium_p50_ns"`
}

// DefaultThresholds are those of mrm-trace.
func DefaultThresholds() Thresholds {
	return Thresholds{HighWriteOnce: 0.8, MediumWriteOnce: 0.5, HighP99NS: 10e9, MediumP50NS: 1e9}
}

func (t Thresholds) orDefault() Thresholds {
	if t == (Thresholds{}) {
		return DefaultThresholds()
	}
	return t
}

// label is mrm-trace's rule.
func (t Thresholds) label(once float64, p50, p99 int64) Suitability {
	switch {
	case once >= t.HighWriteOnce && p99 >= t.HighP99NS:
		return HighMRM
	case once >= t.MediumWriteOnce && p50 >= t.MediumP50NS:
		return MediumMRM
	}
	return LowMRM
}

// Label is the suitability by mrm-trace's rules, on plain percentiles. They take the 99th percentile for high and
// the median for medium, so that they are not an order by one quantity. It is false where nothing was written: then
// nothing is known.
func (m *Metrics) Label(t Thresholds) (Suitability, bool) {
	once, ok := m.WriteOnce()
	if !ok || m.Retention.Count == 0 {
		return "", false
	}
	p50, _ := m.Retention.Quantile(0.5)
	p99, _ := m.Retention.Quantile(0.99)
	return t.orDefault().label(once, p50, p99), true
}

// LabelCensored is the suitability by the same rules on what is known of retention where some of it was not seen to
// end: on lower bounds by Kaplan and Meier. A region that a longer retention would move to a better label, where
// the trace cannot show, has [InsufficientMRM] if not even its bound has one: a short run never calls memory low
// that may well be high.
func (m *Metrics) LabelCensored(t Thresholds) (Suitability, bool) {
	once, ok := m.WriteOnce()
	if !ok || m.Retention.Count == 0 {
		return "", false
	}
	t = t.orDefault()
	p50, _ := m.Retention.AtLeast(0.5)
	p99, _ := m.Retention.AtLeast(0.99)
	bound := t.label(once, p50, p99)
	most50, most99 := p50, p99
	if _, known := m.Retention.KaplanMeier(0.5); !known {
		most50 = Forever
	}
	if _, known := m.Retention.KaplanMeier(0.99); !known {
		most99 = Forever
	}
	if bound == LowMRM && t.label(once, most50, most99) != LowMRM {
		return InsufficientMRM, true
	}
	return bound, true
}
