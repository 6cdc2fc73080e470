package memtrace

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// Observed measures regions by mrm-trace's definitions, out of single accesses to addresses: retention is from the
// first write of a region to its last read, a working set is pages, write-once counts addresses. A [Meter] follows
// bytes instead. Its zero value is empty.
type Observed struct {
	regions map[int64]*ObservedRegion
	kept    int // addresses and pages
}

// ObservedRegion is what was observed of a region. Times are those that were given to Add.
type ObservedRegion struct {
	ID   int64
	Type RegionType // of its first access
	// FirstWriteNS and LastReadNS are 0 where there was none.
	FirstNS, LastNS, FirstWriteNS, LastReadNS int64
	Reads, Writes                             int64
	PageMin, PageMax                          uint64 // numbers of pages of PageBytes
	pages                                     map[uint64]struct{}
	stores                                    map[uint64]bool // by address: it was written more than once
}

// ObservedType sums up the regions of a type.
type ObservedType struct {
	Type    RegionType
	Regions int
	// Percentiles and mean over regions, in seconds, interpolated as pandas does.
	RetentionP50, RetentionP90, RetentionP99, RetentionMean float64
	// mean over the regions that were written; NaN: none was
	WriteOnce float64
	// mean over all regions, 0 for those that were not written
	ReadsPerWrite float64
	Pages         int64 // sum over regions
}

// maxObserved bounds how many different addresses and pages are distinguished.
const maxObserved = 1 << 23

// ErrObserved occurs when there are more different addresses and pages than can be distinguished.
var ErrObserved = errors.New("too many different addresses")

// Add takes an access in.
func (o *Observed) Add(ns, region int64, kind RegionType, op AccessOp, addr uint64) error {
	r := o.regions[region]
	page := addr / PageBytes
	if r == nil {
		if o.regions == nil {
			o.regions = map[int64]*ObservedRegion{}
		}
		r = &ObservedRegion{
			ID: region, Type: kind, FirstNS: ns, LastNS: ns, PageMin: page, PageMax: page, pages: map[uint64]struct{}{},
			stores: map[uint64]bool{},
		}
		o.regions[region] = r
	}
	r.FirstNS, r.LastNS, r.PageMin, r.PageMax = min(r.FirstNS, ns), max(r.LastNS, ns), min(r.PageMin, page),
		max(r.PageMax, page)
	if _, known := r.pages[page]; !known {
		r.pages[page] = struct{}{}
		o.kept++
	}
	switch op {
	case OpRead:
		r.Reads++
		r.LastReadNS = max(r.LastReadNS, ns)
	case OpWrite:
		r.Writes++
		if r.FirstWriteNS == 0 || ns < r.FirstWriteNS {
			r.FirstWriteNS = ns
		}
		_, again := r.stores[addr]
		r.stores[addr] = again
		if !again {
			o.kept++
		}
	}
	if o.kept > maxObserved {
		return ErrObserved
	}
	return nil
}

// Regions are all that were observed, by ID.
func (o *Observed) Regions() []*ObservedRegion {
	observedRegions := make([]*ObservedRegion, 0, len(o.regions))
	for _, r := range o.regions {
		observedRegions = append(observedRegions, r)
	}
	slices.SortFunc(observedRegions, func(a, b *ObservedRegion) int { return cmp.Compare(a.ID, b.ID) })
	return observedRegions
}

// Pages is how many different pages were touched.
func (r *ObservedRegion) Pages() int { return len(r.pages) }

// RetentionNS is from the first write, or the first access where there was none, to the last read; 0 where nothing
// was read after that.
func (r *ObservedRegion) RetentionNS() int64 {
	from := r.FirstWriteNS
	if from == 0 {
		from = r.FirstNS
	}
	return max(r.LastReadNS-from, 0)
}

// WriteOnce is the share of written addresses that were written once; NaN where nothing was written.
func (r *ObservedRegion) WriteOnce() float64 {
	once := 0
	for _, again := range r.stores {
		if !again {
			once++
		}
	}
	return float64(once) / float64(len(r.stores))
}

// Types sums regions up, in the order of types.
func (o *Observed) Types() (observedTypes []ObservedType) {
	by := map[RegionType][]*ObservedRegion{}
	for _, r := range o.Regions() {
		by[r.Type] = append(by[r.Type], r)
	}
	for _, kind := range RegionTypes() {
		regions := by[kind]
		if len(regions) == 0 {
			continue
		}
		t := ObservedType{Type: kind, Regions: len(regions)}
		var seconds []float64
		var once, written float64
		for _, r := range regions {
			s := float64(r.RetentionNS()) / 1e9
			seconds = append(seconds, s)
			t.RetentionMean += s / float64(len(regions))
			t.Pages += int64(r.Pages())
			if r.Writes > 0 {
				once, written = once+r.WriteOnce(), written+1
				t.ReadsPerWrite += float64(r.Reads) / float64(r.Writes) / float64(len(regions))
			}
		}
		slices.Sort(seconds)
		t.RetentionP50, t.RetentionP90, t.RetentionP99 = quantile(seconds, 0.5), quantile(seconds, 0.9),
			quantile(seconds, 0.99)
		t.WriteOnce = once / written
		observedTypes = append(observedTypes, t)
	}
	return observedTypes
}

// Label is mrm-trace's label of a type.
func (t *ObservedType) Label(th Thresholds) Suitability {
	once := t.WriteOnce
	if math.IsNaN(once) {
		once = 0
	}
	switch {
	case once >= th.HighWriteOnce && t.RetentionP99*1e9 >= float64(th.HighP99NS):
		return HighMRM
	case once >= th.MediumWriteOnce && t.RetentionP50*1e9 >= float64(th.MediumP50NS):
		return MediumMRM
	}
	return LowMRM
}

// quantile is a quantile of sorted values, interpolated between neighbours.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (sorted[low+1]-sorted[low])*(at-float64(low))
}
