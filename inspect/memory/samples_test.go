package memory

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// sampled is a row of a collector of samples.
func sampled(ns int64, from memtrace.Collector, op memtrace.AccessOp, kind memtrace.RegionType, region, addr, size,
	weight int) row {
	r := row{memtrace.TraceTime: testBegin + ns, memtrace.TraceRegionType: kind.String(), memtrace.TraceRegion: region,
		memtrace.TraceAddr: addr, memtrace.TraceSize: size,
		memtrace.TraceCollector: from.String(), memtrace.TraceWeight: weight}
	if op != memtrace.OpUnknown {
		r[memtrace.TraceOp] = op.String()
	}
	return r
}

// TestSamplesAlone: samples say how many events there were, and nothing of what they did not see.
func TestSamplesAlone(t *testing.T) {
	var rows []row
	for i := range 400 {
		rows = append(rows, sampled(int64(i)*1e6, memtrace.CollectorPerf,
			[]memtrace.AccessOp{read, read, read, write}[i%4], weight, 1, 1<<20+i*1024, 8, 1000))
	}
	r := analyze(t, run(t, rows, 100), Options{})
	if len(r.Samples) != 1 || r.Samples[0].Period != 1000 || r.Samples[0].Source != Estimated ||
		r.Samples[0].Types[0].PagesSeen != 100 {
		t.Fatalf("%+v", r.Samples)
	}
	e := r.Samples[0].Types[0].Events["read"]
	if half := 1.96 * 1000 * math.Sqrt(300); e.Events != 300_000 || math.Abs(e.High-300_000-half) > 1 ||
		math.Abs(300_000-half-e.Low) > 1 {
		t.Errorf("%+v", e)
	}
	if writes := r.Samples[0].Types[0].Events["write"]; e.Share != 0.75 || writes.Share != 0.25 ||
		r.Samples[0].Types[0].Share != 1 {
		t.Errorf("shares of reads and writes: %v, %v of %v", e.Share, writes.Share, r.Samples[0].Types[0].Share)
	}
	w := r.Type("weight")
	if w.Source != Estimated || w.Reads != 300_000 || w.Writes != 100_000 || w.WriteOnce != nil || w.Retention != nil ||
		w.Label != "" || w.IAI != nil || len(w.WorkingSet) != 0 {
		t.Errorf("%+v", w)
	}
	var b bytes.Buffer
	if err := r.WriteMetrics(&b); err != nil || !strings.Contains(b.String(),
		"weight,1,0,,,,,,,300000,100000,,,,,,,0.39") {
		t.Errorf("%v: %s", err, b.String())
	}
	b.Reset()
	if err := r.WriteText(&b, ByType, 5); err != nil ||
		!strings.Contains(b.String(), "one for 1000 events: estimated") ||
		!strings.Contains(b.String(), "266052 to 333948") ||
		!strings.Contains(b.String(), "75.0 %") || !strings.Contains(b.String(), "25.0 %") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestFaultsAlone: page faults are no accesses, and no table says so.
func TestFaultsAlone(t *testing.T) {
	r := analyze(t, run(t, []row{sampled(5, memtrace.CollectorFault, write, weight, 1, 4096, 1, 1),
		sampled(9, memtrace.CollectorFault, read, weight, 1, 8192, 1, 1)}, 10), Options{})
	var b bytes.Buffer
	if err := r.WriteText(&b, ByType, 5); err != nil || strings.Contains(b.String(), "write-once  kept") ||
		!strings.Contains(b.String(), "there is no ledger") {
		t.Errorf("%v: %s", err, b.String())
	}
	if w := r.Type("weight"); w == nil || w.Retention != nil || w.Reads+w.Writes != 0 || w.Observed.Pages != 2 ||
		r.Samples[0].Source != Measured || r.Samples[0].Types[0].PagesSeen != 2 || r.EndUnixNS-r.BeginUnixNS != 4 {
		t.Errorf("%+v", r)
	}
}

// TestAgreement: samples that the ledger explains, and that it does not; pages that were written; and the order of
// first touches.
func TestAgreement(t *testing.T) {
	const base = 1 << 30
	ledger := func(step int, op memtrace.AccessOp, kind memtrace.RegionType, region, addr, size int) row {
		return access(int64(step)*second, op, kind, region, 1, addr, size).with(memtrace.TraceAddr, base+addr,
			memtrace.TraceGraphSeq, step, memtrace.TraceToken, step)
	}
	var rows []row
	for step := range 10 {
		rows = append(rows, ledger(step, read, weight, 1, 0, 65536), ledger(step, write, kv, 2, 1<<20+step*4096, 4096),
			ledger(step, read, weight, 3, 65536, 65536))
	}
	at := func(step int) int64 { return int64(step)*second + second/2 }
	for step := range 10 {
		// Each third perf sample is at an address that no op touches, or a write of what was read.
		rows = append(rows, sampled(at(step), memtrace.CollectorPerf, read, weight, 1, base+step*100, 8, 100),
			sampled(at(step), memtrace.CollectorPerf, write, kv, 2, base+1<<20+step*4096+8, 8, 100))
		if step%2 == 0 {
			rows = append(rows, sampled(at(step), memtrace.CollectorPerf, write, weight, 3, base+65536, 8, 100))
		} else {
			rows = append(rows, sampled(at(step), memtrace.CollectorPerf, read, memtrace.Runtime, 9, base+1<<25, 8,
				100))
		}
		// The scan of each step finds what was written, in step 4 two pages more, and in step 5 nothing.
		if step != 5 {
			rows = append(rows, sampled(at(step)+1, memtrace.CollectorPage, write, kv, 2, base+1<<20+step*4096, 4096,
				1))
		}
		if step == 4 {
			rows = append(rows, sampled(at(step)+1, memtrace.CollectorPage, write, kv, 2, base+1<<20+50*4096, 8192, 1))
		}
	}
	for i, region := range []int{1, 2, 3} { // faults in the ledger's order
		rows = append(rows, sampled(int64(10+i), memtrace.CollectorFault, memtrace.OpUnknown, weight, region,
			base+[]int{0, 1 << 20, 65536}[i]+17, 1, 1))
	}
	rows = append(rows, sampled(-5, memtrace.CollectorFault, memtrace.OpUnknown, weight, 1, base, 1, 1),
		sampled(5, memtrace.CollectorFault, memtrace.OpUnknown, weight, 1, 0, 1, 1))
	dir := run(t, rows, 16)
	writeFile(t, dir, rundir.RegionsName, regionMap(t, []regionFixture{
		{id: 1, kind: "weight", name: "a", buffer: 1, bytes: 65536, addr: base},
		{id: 3, kind: "weight", name: "b", buffer: 1, offset: 65536, bytes: 65536, addr: base + 65536},
		{id: 2, kind: "kv_cache", name: "k", kv: "k", buffer: 1, offset: 1 << 20, bytes: 1 << 20, addr: base + 1<<20},
	}))
	r := analyze(t, dir, Options{})
	by := map[string]*Agreement{}
	for i := range r.Agreement {
		by[r.Agreement[i].Collector] = &r.Agreement[i]
	}
	perf, page, fault := by["perf"], by["page"], by["fault"]
	if perf == nil || page == nil || fault == nil {
		t.Fatalf("%+v", r.Agreement)
	}
	if perf.Samples != 30 || perf.Compared != 30 || perf.Explained != 20 || len(perf.Steps) != 10 ||
		perf.Steps[3].Graph != 3 || perf.Steps[3].Compared != 3 || perf.Steps[3].Explained != 2 {
		t.Errorf("%+v", perf)
	}
	if w := page.Written; len(w) != 1 || w[0] != (Written{Type: "kv_cache", Pages: 10, InLedger: 8, Ledger: 9,
		Found: 8}) || page.Intervals != 8 {
		t.Errorf("%+v", page.Written)
	}
	for _, s := range r.Samples { // of pages that a scan found next to each other there is one row
		if e := s.Types[0].Events["write"]; s.Collector == "page" && (s.Samples != 11 || s.Source != Measured ||
			e.Samples != 11 || e.Events != 11 || e.High != 11 || page.Samples != 11) {
			t.Errorf("%+v, %d compared; 11 pages were found written", s, page.Samples)
		}
	}
	if fault.Compared != 3 || fault.Explained != 3 || fault.NotCompared[noAddress] != 1 ||
		fault.NotCompared[outsideGraph] != 1 || fault.FirstTouch.Regions != 3 || *fault.FirstTouch.KendallTau != 1 {
		t.Errorf("%+v, %+v", fault, fault.FirstTouch)
	}
	if w := r.Type("weight"); w.Source != Computed || r.Collectors["graph"] != 30 || r.Collectors["fault"] != 5 {
		t.Errorf("%+v", r.Collectors)
	}
	var b bytes.Buffer
	if err := r.WriteText(&b, ByType, 5); err != nil || !strings.Contains(b.String(), "66.67 % explained") {
		t.Errorf("%v: %s", err, b.String())
	}
}
