package memory

import (
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// Written compares pages of a type of region that were found written between scans with those that the ledger says
// were.
type Written struct {
	Type     string `json:"region_type"` // compute_buffer has activations
	Pages    int64  `json:"pages"`       // found written
	InLedger int64  `json:"in_ledger"`   // of these, those that the ledger says were
	Ledger   int64  `json:"ledger_pages"`
	Found    int64  `json:"found"` // of the ledger's, those that were found
}

// groups are types of regions whose pages are compared together: activations lie in compute buffers.
var groups = func() (all [][]memtrace.RegionType) {
	for _, t := range memtrace.RegionTypes() {
		switch t {
		case memtrace.Activation:
		case memtrace.ComputeBuffer:
			all = append(all, []memtrace.RegionType{t, memtrace.Activation})
		default:
			all = append(all, []memtrace.RegionType{t})
		}
	}
	return all
}()

// scan is what one scan for written pages found, by group of types.
type scan struct {
	ns    int64
	pages []memtrace.Pages
}

// findScans finds out which samples belong to one scan.
func (j *judge) findScans() {
	j.written = make([]Written, len(groups))
	for i := range j.samples {
		w := &j.samples[i]
		if w.from != memtrace.CollectorPage || w.addr == 0 {
			continue
		}
		if n := len(j.scans); n == 0 || j.scans[n-1].ns != w.ns {
			j.scans = append(j.scans, scan{ns: w.ns, pages: make([]memtrace.Pages, len(groups))})
		}
		group := slices.IndexFunc(groups, func(types []memtrace.RegionType) bool {
			return slices.Contains(types, w.kind)
		})
		j.scans[len(j.scans)-1].pages[group].Add(w.addr, w.addr+max(w.size, 1))
	}
}

// endScans compares the scans before a time with what the ledger says was written since the scan before each.
func (j *judge) endScans(ns int64) {
	for ; j.nextScan < len(j.scans) && j.scans[j.nextScan].ns < ns; j.nextScan++ {
		s := &j.scans[j.nextScan]
		wrote, found := make([]*memtrace.Pages, len(groups)), &memtrace.Pages{}
		all := &memtrace.Pages{}
		for group, types := range groups {
			wrote[group] = j.ledger.TakeWritten(types...)
			all.Merge(wrote[group])
			found.Merge(&s.pages[group])
		}
		if !j.begun || j.nextScan == 0 { // what the first one found may have been written at any time before
			continue
		}
		j.intervals++
		for group := range groups {
			w := &j.written[group]
			w.Pages += s.pages[group].Count()
			w.InLedger += s.pages[group].And(all).Count()
			w.Ledger += wrote[group].Count()
			w.Found += wrote[group].And(found).Count()
		}
		s.pages = nil
	}
}

// pages are the verdicts by type, of types of which any page was ever found.
func (j *judge) pages() (byGroup []Written) {
	for group, w := range j.written {
		if w.Type = groups[group][0].String(); w.Pages > 0 {
			byGroup = append(byGroup, w)
		}
	}
	return byGroup
}
