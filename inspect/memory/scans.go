package memory

import "github.com/llamatap/llamatap/memtrace"

// scan is what one scan for written pages found.
type scan struct {
	ns    int64
	pages []memtrace.Range
	sum   Written // of the interval before it
}

// findScans finds out which samples belong to one scan, and which regions were watched: those of which any page was ever found written.
func (j *judge) findScans() {
	j.watched = map[int64]memtrace.Range{}
	for i := range j.samples {
		w := &j.samples[i]
		if w.from != memtrace.CollectorPage || w.addr == 0 {
			continue
		}
		if n := len(j.scans); n == 0 || j.scans[n-1].ns != w.ns {
			j.scans = append(j.scans, scan{ns: w.ns})
		}
		s := &j.scans[len(j.scans)-1]
		page := memtrace.Range{Start: w.addr &^ (memtrace.PageBytes - 1), End: (w.addr + max(w.size, 1) + memtrace.PageBytes - 1) &^ (memtrace.PageBytes - 1)}
		s.pages = append(s.pages, page)
		row := j.regions.all[int(w.region)]
		if row != nil && row.start != 0 {
			j.watched[w.region] = memtrace.Range{Start: row.start, End: row.start + row.bytes}
		}
	}
}

// endScans compares the scans before a time with what the ledger says was written since the scan before each.
func (j *judge) endScans(ns int64) {
	for ; j.nextScan < len(j.scans) && j.scans[j.nextScan].ns < ns; j.nextScan++ {
		s := &j.scans[j.nextScan]
		var found memtrace.Pages
		for _, page := range s.pages {
			found.Add(page.Start, page.End)
		}
		wrote := j.ledger.TakeWritten()
		if !j.begun {
			continue
		}
		s.sum.Intervals = 1
		for _, watched := range j.watched {
			in := found.Within(watched)
			both := in.And(wrote)
			ledger := wrote.Within(watched)
			s.sum.Pages += in.Count()
			s.sum.InLedger += both.Count()
			s.sum.Ledger += ledger.Count()
			s.sum.Found += ledger.And(&found).Count()
		}
		s.pages = nil
	}
}

// written adds the scans up.
func (j *judge) written() *Written {
	var all Written
	for i := range j.scans {
		s := &j.scans[i].sum
		all.Intervals += s.Intervals
		all.Pages += s.Pages
		all.InLedger += s.InLedger
		all.Ledger += s.Ledger
		all.Found += s.Found
	}
	return &all
}
