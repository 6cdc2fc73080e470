package memtrace

import "math"

// Sampled is what samples of one collector say of memory. A sample stands for as many events as its weight says, so
// that sums are estimates unless every weight is 1. Nothing is said of what was not seen: of no byte is it known
// that it was written once, or not at all.
type Sampled struct {
	Types [regionTypes]SampledType
	// First and Last are when the first and the last sample were taken.
	First, Last int64
	Samples     int64
	pages       Pages
}

// SampledType is what samples say of regions of a type.
type SampledType struct {
	Samples int64
	Ops     [accessOps]Estimate // by AccessOp
	// Pages is how many different pages of PageBytes were seen: at least so many were touched.
	Pages int64
}

// PageBytes is the page that samples are counted in.
const PageBytes = 4096

const pagesPerChunk = 1 << 15

// Estimate is a number of events that was estimated from samples.
type Estimate struct {
	Samples int64
	Events  float64 // sum of weights
	squares float64
}

// Add takes a sample in. A weight of 0 counts as 1.
func (e *Estimate) Add(weight int64) {
	w := float64(max(weight, 1))
	e.Samples++
	e.Events += w
	e.squares += w * w
}

// Merge takes another estimate in, of other samples.
func (e *Estimate) Merge(o *Estimate) {
	e.Samples += o.Samples
	e.Events += o.Events
	e.squares += o.squares
}

// Interval is the 95 % confidence interval of the number of events, by the normal approximation of a sum of Poisson
// counts: Σw ± 1.96 √Σw². It is the number itself where every weight was 1, for then all events were recorded.
func (e *Estimate) Interval() (low, high float64) {
	if e.Events == float64(e.Samples) {
		return e.Events, e.Events
	}
	half := 1.96 * math.Sqrt(e.squares)
	return max(e.Events-half, float64(e.Samples)), e.Events + half
}

// total returns the estimate of the events of all ops.
func (t *SampledType) total() (all Estimate) {
	for i := range t.Ops {
		all.Merge(&t.Ops[i])
	}
	return all
}

// Period is how many events a sample stood for on average; 1 where all were recorded.
func (s *Sampled) Period() float64 {
	events := 0.0
	for i := range s.Types {
		all := s.Types[i].total()
		events += all.Events
	}
	if s.Samples == 0 {
		return 0
	}
	return events / float64(s.Samples)
}

// Add takes a sample of size bytes in. A weight of 0 counts as 1.
func (s *Sampled) Add(ns int64, kind RegionType, op AccessOp, addr, size uint64, weight int64) {
	if s.Samples == 0 {
		s.First, s.Last = ns, ns
	}
	s.First, s.Last = min(s.First, ns), max(s.Last, ns)
	s.Samples++
	t := &s.Types[kind]
	t.Samples++
	t.Ops[op].Add(weight)
	for page := addr / PageBytes; page <= (addr+max(size, 1)-1)/PageBytes; page++ {
		if s.pages.add(page) {
			t.Pages++
		}
	}
}
