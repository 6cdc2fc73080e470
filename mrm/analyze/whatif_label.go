package analyze

import "github.com/llamatap/llamatap/memtrace"

// metrics are what labels are given by.
func (s *subject) metrics() *memtrace.Metrics {
	m := &memtrace.Metrics{Written: s.Written, WrittenOnce: s.WrittenOnce}
	if s.Lives != nil {
		m.Retention = *s.Lives
	}
	return m
}

// Label is mrm-trace's label by plain percentiles: mrm_label. It takes what is censored for what was seen of it. It
// is false where nothing was written.
func (s *subject) label(t memtrace.Thresholds) (memtrace.Suitability, bool) {
	return s.metrics().Label(t)
}

// LabelCensored is the label by mrm-trace's rules on lower bounds by Kaplan and Meier: mrm_label_censored. Where so
// many lives are censored that a percentile is not known, it is at least as long as the longest life that was seen;
// [memtrace.InsufficientMRM] where that leaves it open whether a region is better than low. It is false where
// nothing was written.
func (s *subject) labelCensored(t memtrace.Thresholds) (memtrace.Suitability, bool) {
	return s.metrics().LabelCensored(t)
}
